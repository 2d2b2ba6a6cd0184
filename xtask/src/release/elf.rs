//! Whether a program needs libraries of the computer.

const HEADER: usize = 64;
/// The type of the program header that names a dynamic loader.
const INTERPRETER: u32 = 3;

/// Whether the program is a 64-bit ELF file that no dynamic loader has to start. Such a program has all
/// of its libraries in it, so it runs on any distribution. `None` if it is no such file.
pub(super) fn is_static(program: &[u8]) -> Option<bool> {
    if !program.starts_with(b"\x7fELF\x02\x01") || program.len() < HEADER {
        return None;
    }
    let offset = usize::try_from(u64::from_le_bytes(bytes(program, 32)?)).ok()?;
    let size = usize::from(u16::from_le_bytes(bytes(program, 54)?));
    let count = usize::from(u16::from_le_bytes(bytes(program, 56)?));
    let mut types = (0..count).map(|number| {
        let start = offset.checked_add(size.checked_mul(number)?)?;
        Some(u32::from_le_bytes(bytes(program, start)?))
    });
    types.try_fold(true, |is_static, kind| Some(is_static && kind? != INTERPRETER))
}

fn bytes<const N: usize>(program: &[u8], start: usize) -> Option<[u8; N]> {
    program.get(start..start.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A program with headers of these types.
    pub(crate) fn program(types: &[u32]) -> Vec<u8> {
        let mut program = vec![0; HEADER];
        program[..6].copy_from_slice(b"\x7fELF\x02\x01");
        program[32] = 64;
        program[54] = 56;
        program[56] = u8::try_from(types.len()).unwrap();
        for kind in types {
            program.extend(kind.to_le_bytes());
            program.extend([0; 52]);
        }
        program
    }

    #[test]
    fn a_program_with_a_loader_is_not_static() {
        assert_eq!(is_static(&program(&[1, 2])), Some(true));
        assert_eq!(is_static(&program(&[1, INTERPRETER, 2])), Some(false));
        // This test needs the C library of this computer.
        let this = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(is_static(&this), Some(false));
    }

    #[test]
    fn what_is_no_program_is_told_apart() {
        assert_eq!(is_static(b"#!/bin/sh\n"), None);
        assert_eq!(is_static(b"\x7fELF\x02\x01"), None);
        let whole = program(&[1]);
        assert_eq!(is_static(&whole[..whole.len() - 56]), None);
    }
}
