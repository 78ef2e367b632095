//! What a drawing stands in: the page, or a file of its own.

use crate::escape::Escaped;
use std::fmt::{self, Write};

const PALETTE: &str = include_str!("../../assets/palette.css");
const PICTURE_STYLE: &str = include_str!("../../assets/picture.css");

/// Where a drawing goes. In a page it is as wide as there is room and has the page's styles; a file holds its own, and
/// its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DrawingFrame {
    /// Among other things on a page.
    Page,
    /// By itself.
    File,
}

impl DrawingFrame {
    /// Begins a drawing of this class (of styles), width and height, with a text for screen readers.
    pub(super) fn open(
        self,
        class: &str,
        (width, height): (f64, f64),
        label: &str,
        out: &mut String,
    ) -> fmt::Result {
        let label = Escaped(label);
        match self {
            DrawingFrame::Page => writeln!(
                out,
                "<div><svg class=\"{class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\">"
            ),
            DrawingFrame::File => writeln!(
                out,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"{class}\" viewBox=\"0 0 {width} {height}\" \
                 width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{label}\">\n\
                 <style>\n{PALETTE}{PICTURE_STYLE}</style>\n\
                 <rect width=\"{width}\" height=\"{height}\" class=\"ground\"/>"
            ),
        }
    }

    /// Ends it.
    pub(super) fn close(self, out: &mut String) -> fmt::Result {
        out.write_str(match self {
            DrawingFrame::Page => "</svg></div>\n",
            DrawingFrame::File => "</svg>\n",
        })
    }
}
