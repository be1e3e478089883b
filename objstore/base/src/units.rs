//! Sizes, and the one block size every stored structure is aligned to.

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

/// Bytes of a block: the unit of alignment, of checksums and of what a device writes atomically at best.
pub const BLOCK: usize = 4096;

/// `n` rounded up to a whole number of blocks.
pub const fn block_up(n: u64) -> u64 {
    n.div_ceil(BLOCK as u64) * BLOCK as u64
}

/// Parses `64`, `64K`, `1.5GiB`, `2G` (binary multiples, as ecosystem tools do for sizes).
pub fn parse_size(text: &str) -> Result<u64, String> {
    let t = text.trim();
    let split = t.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(t.len());
    let (number, suffix) = t.split_at(split);
    let scale = match suffix.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => KIB,
        "m" | "mib" => MIB,
        "g" | "gib" => GIB,
        "t" | "tib" => GIB * 1024,
        _ => return Err(format!("'{text}' is not a size: use a number with K, M, G or T, for example 512M")),
    };
    let value: f64 = number.parse().map_err(|_| format!("'{text}' is not a size: use a number with K, M, G or T, for example 512M"))?;
    let bytes = value * scale as f64;
    if !bytes.is_finite() || bytes < 0.0 || bytes > u64::MAX as f64 / 2.0 {
        return Err(format!("'{text}' is too large for a size"));
    }
    Ok(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_with_binary_suffixes() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("64K"), Ok(65536));
        assert_eq!(parse_size("1.5GiB"), Ok(GIB + GIB / 2));
        assert!(parse_size("12 parsecs").is_err());
        assert!(parse_size("").is_err());
        assert!(parse_size("-1").is_err());
    }
}
