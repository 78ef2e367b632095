//! The text of a panic.

use std::any::Any;

/// The message of a panic, from the payload of `catch_unwind` or of a join; "no message" when the payload is not text.
pub fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{catch_unwind, panic_any};

    #[test]
    fn texts_of_panics() {
        let number = 7;
        let text = |panic: &dyn Fn()| {
            let payload = catch_unwind(std::panic::AssertUnwindSafe(panic)).unwrap_err();
            panic_text(&*payload).to_owned()
        };
        assert_eq!(text(&|| panic!("plain")), "plain");
        assert_eq!(text(&|| panic!("number {number}")), "number 7");
        assert_eq!(text(&|| panic_any(number)), "no message");
    }
}
