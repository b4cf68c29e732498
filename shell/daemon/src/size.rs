//! Sizes as people write them.

use std::fmt;
use std::str::FromStr;

/// Bytes; reads `10G`, `512M`, `4096`, with powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Size(pub u64);

const UNITS: [(char, u32); 4] = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Size, String> {
        let upper = text.trim().to_ascii_uppercase();
        let plain = upper.strip_suffix("IB").or(upper.strip_suffix('B')).unwrap_or(&upper);
        let (number, shift) = UNITS
            .iter()
            .find_map(|&(unit, shift)| Some((plain.strip_suffix(unit)?, shift)))
            .unwrap_or((plain, 0));
        let number: u64 = number.trim().parse().map_err(|_| format!("`{text}` is not a size like 10G"))?;
        number.checked_mul(1 << shift).map(Size).ok_or(format!("{text} is too large"))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &(unit, shift) in UNITS.iter().rev() {
            if self.0 >= 1 << shift && self.0.is_multiple_of(1 << shift) {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

/// A size of memory that a daemon can work with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory(pub Size);

/// Less than that is in use before the first request comes.
const MEMORY_MIN: Size = Size(128 << 20);

impl FromStr for Memory {
    type Err = String;
    fn from_str(text: &str) -> Result<Memory, String> {
        let size: Size = text.parse()?;
        match size.0 >= MEMORY_MIN.0 {
            true => Ok(Memory(size)),
            false => Err(format!("{size} is not enough memory, the minimum is {MEMORY_MIN}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_back_as_they_print() {
        for (text, bytes, printed) in [
            ("10G", 10 << 30, "10G"),
            ("512MiB", 512 << 20, "512M"),
            ("1536k", 1536 << 10, "1536K"),
            ("7", 7, "7"),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!((size, size.to_string()), (Size(bytes), printed.to_string()));
        }
        assert!("100M".parse::<Memory>().is_err() && "256M".parse::<Memory>().is_ok());
        assert!("10X".parse::<Size>().is_err() && "99999999T".parse::<Size>().is_err());
    }
}
