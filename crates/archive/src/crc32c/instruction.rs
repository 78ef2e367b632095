//! The processor's instructions for CRC-32C, where it has them. Written in assembly because a function that is compiled
//! for a feature of the processor is never inlined into one that is not, and the call would cost as much as the work.
#![cfg_attr(
    target_arch = "x86_64",
    expect(
        unsafe_code,
        reason = "assembly; each use is behind the test for the instruction"
    )
)]

#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{crc32c, is_there, multiply};

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use elsewhere::{crc32c, is_there, multiply};

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::asm;
    use std::arch::is_x86_feature_detected;

    /// Does this processor have what [`crc32c`] and [`multiply`] need? Asked once, then one load.
    #[inline]
    pub(crate) fn is_there() -> bool {
        is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq")
    }

    /// One step of the checksum by the instruction for so many bytes.
    macro_rules! step {
        ($instruction:literal, $state:ident, $data:expr) => {
            // SAFETY: registers only; the callers asked `is_there`.
            unsafe {
                asm!(
                    $instruction,
                    state = inout(reg) $state,
                    data = in(reg) $data,
                    options(pure, nomem, nostack, preserves_flags),
                );
            }
        };
    }

    /// CRC-32C of what has the checksum `before` and `bytes` behind it, eight bytes a step. To be called only when
    /// [`is_there`].
    #[inline]
    pub(crate) fn crc32c(before: u32, bytes: &[u8]) -> u32 {
        debug_assert!(is_there());
        let mut state = u64::from(!before);
        let (quarters, rest) = bytes.as_chunks::<32>();
        for quarter in quarters {
            // Unrolled: the loop would cost as much as the steps.
            let (words, _) = quarter.as_chunks::<8>();
            for word in words {
                step!("crc32 {state}, {data}", state, u64::from_le_bytes(*word));
            }
        }
        let (words, rest) = rest.as_chunks::<8>();
        for word in words {
            step!("crc32 {state}, {data}", state, u64::from_le_bytes(*word));
        }
        let mut state = state as u32;
        let mut rest = rest;
        if let Some((word, behind)) = rest.split_first_chunk::<4>() {
            let word = u32::from_le_bytes(*word);
            step!("crc32 {state:e}, {data:e}", state, word);
            rest = behind;
        }
        if let Some((half, behind)) = rest.split_first_chunk::<2>() {
            let half = u16::from_le_bytes(*half);
            step!("crc32 {state:e}, {data:x}", state, half);
            rest = behind;
        }
        if let Some(&byte) = rest.first() {
            // SAFETY: as above.
            unsafe {
                asm!(
                    "crc32 {state:e}, {data}",
                    state = inout(reg) state,
                    data = in(reg_byte) byte,
                    options(pure, nomem, nostack, preserves_flags),
                );
            }
        }
        !state
    }

    /// a · b · x³³ modulo the polynomial: a carry-less product, which reads as one power higher in 64 bits, reduced by the
    /// checksum instruction, which multiplies by x³². To be called only when [`is_there`].
    #[inline]
    pub(crate) fn multiply(a: u32, b: u32) -> u32 {
        debug_assert!(is_there());
        let product: u64;
        // SAFETY: registers only; the callers asked `is_there`.
        unsafe {
            asm!(
                "movd {first}, {a:e}",
                "movd {second}, {b:e}",
                "pclmulqdq {first}, {second}, 0",
                "movq {product}, {first}",
                a = in(reg) a,
                b = in(reg) b,
                first = out(xmm_reg) _,
                second = out(xmm_reg) _,
                product = lateout(reg) product,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        let mut state = 0_u64;
        step!("crc32 {state}, {data}", state, product);
        state as u32
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod elsewhere {
    /// The library's own paths serve every length here.
    pub(crate) fn is_there() -> bool {
        false
    }

    /// The slow way.
    pub(crate) fn crc32c(before: u32, bytes: &[u8]) -> u32 {
        let shift = super::super::Shift::by(bytes.len() as u64);
        shift.combine(before, crc_fast::crc32_iscsi(bytes))
    }

    /// As the definition says.
    pub(crate) fn multiply(a: u32, b: u32) -> u32 {
        super::super::multiply(super::super::multiply(a, b), super::super::power_of_x(33))
    }
}
