//! The processor's instructions for CRC-32C, where it has them. In assembly, because a function compiled for a processor
//! feature is never inlined into one that is not, and the call would cost as much as the work.
#![cfg_attr(
    target_arch = "x86_64",
    expect(
        unsafe_code,
        reason = "assembly; callers test for the instruction first"
    )
)]

#[cfg(target_arch = "x86_64")]
pub use x86_64::{crc32c, is_supported, multiply};

#[cfg(not(target_arch = "x86_64"))]
pub use elsewhere::{crc32c, is_supported, multiply};

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::asm;
    use std::arch::is_x86_feature_detected;

    /// Does this processor have the instructions of [`crc32c`] and [`multiply`]? Detected once, later calls are one load.
    #[inline]
    pub fn is_supported() -> bool {
        is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq")
    }

    /// One step of the checksum, by the instruction for operands of this width.
    macro_rules! step {
        ($instruction:literal, $state:ident, $data:expr) => {
            // SAFETY: registers only; the callers tested `is_supported`.
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

    /// CRC-32C of a piece with the checksum `before` followed by `bytes`, eight bytes a step. Requires
    /// [`is_supported`].
    #[inline]
    pub fn crc32c(before: u32, bytes: &[u8]) -> u32 {
        debug_assert!(is_supported());
        let mut state = u64::from(!before);
        let (quarters, rest) = bytes.as_chunks::<32>();
        for quarter in quarters {
            // Of constant length, so that the compiler unrolls it: the loop would cost as much as the steps.
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
        if let Some((word, after)) = rest.split_first_chunk::<4>() {
            let word = u32::from_le_bytes(*word);
            step!("crc32 {state:e}, {data:e}", state, word);
            rest = after;
        }
        if let Some((half, after)) = rest.split_first_chunk::<2>() {
            let half = u16::from_le_bytes(*half);
            step!("crc32 {state:e}, {data:x}", state, half);
            rest = after;
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

    /// a · b · x³³ modulo the polynomial: the carry-less product of two bit-reversed numbers is one power of x higher in
    /// 64 bits, and the checksum instruction, which reduces it, multiplies by x³². Requires [`is_supported`].
    #[inline]
    pub fn multiply(a: u32, b: u32) -> u32 {
        debug_assert!(is_supported());
        let product: u64;
        // SAFETY: registers only; the callers tested `is_supported`.
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
    /// Never: `crc_fast` has its own code for these processors, at every length.
    pub fn is_supported() -> bool {
        false
    }

    /// The portable version, by combination.
    pub fn crc32c(before: u32, bytes: &[u8]) -> u32 {
        let shift = super::super::Shift::by(bytes.len() as u64);
        shift.combine(before, crc_fast::crc32_iscsi(bytes))
    }

    /// The portable version, bit by bit.
    pub fn multiply(a: u32, b: u32) -> u32 {
        super::super::multiply(super::super::multiply(a, b), super::super::power_of_x(33))
    }
}
