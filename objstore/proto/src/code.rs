//! Erasure codes by name: how many data and parity shards, and which arithmetic made the parity.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// `k` data and `m` parity shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Code {
    pub k: u8,
    pub m: u8,
}

impl Code {
    pub const fn new(k: u8, m: u8) -> Self {
        Self { k, m }
    }
    /// Shards of a stripe.
    pub const fn n(self) -> usize {
        self.k as usize + self.m as usize
    }
    /// The code of whole copies that survives what this one does: `1 + m`.
    pub const fn copies(self) -> Code {
        Code { k: 1, m: self.m }
    }
    /// What `osds` devices carry well when nobody names a code.
    pub fn default_for(osds: usize) -> Code {
        match osds {
            0 | 1 => Code::new(1, 0),
            2 => Code::new(1, 1),
            3 => Code::new(1, 2),
            4 | 5 => Code::new(2, 2),
            6..=10 => Code::new(4, 2),
            11..=19 => Code::new(8, 3),
            _ => Code::new(16, 4),
        }
    }
    /// Whether `osds` OSDs can hold a stripe of this code, each shard on another one; if not, a sentence that says so.
    pub fn carried_by(self, osds: usize) -> Result<(), String> {
        if self.n() <= osds {
            return Ok(());
        }
        let there = if osds == 1 { "is 1".to_string() } else { format!("are {osds}") };
        Err(format!(
            "the code {self} needs {} OSDs and there {there}; give more OSDs or a smaller code, for example {}",
            self.n(),
            Code::default_for(osds)
        ))
    }
    /// The code to write with while only `up` devices are there: this one where it fits, else the widest with as much
    /// parity that fits, else as many whole copies as there are devices, but never fewer than two unless m is 0.
    /// (4+2 on five or four devices is 2+2, on three 1+2, on two 1+1.) `None`: no code fits, writes wait.
    pub fn narrowed(self, up: usize) -> Option<Code> {
        if up >= self.n() {
            return Some(self);
        }
        let m = self.m as usize;
        if up > m {
            let most = (up - m).min(self.k as usize);
            let k = if most >= 2 { 1 << most.ilog2() } else { most };
            return Some(Code::new(k as u8, self.m));
        }
        if up >= 2 { Some(Code::new(1, up as u8 - 1)) } else { None }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.k, self.m)
    }
}

impl FromStr for Code {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let bad = || format!("'{s}' is not a code: write data+parity shards, for example 4+2");
        let (k, m) = s.split_once('+').ok_or_else(bad)?;
        let (k, m): (u8, u8) = (k.parse().map_err(|_| bad())?, m.parse().map_err(|_| bad())?);
        if k == 0 || k > 16 || m > 8 {
            return Err(format!("'{s}' is out of range: 1 to 16 data shards and 0 to 8 parity shards"));
        }
        Ok(Code { k, m })
    }
}

/// The arithmetic that made a stripe's parity; stored in every stripe, never inferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Codec {
    /// Every shard is a whole copy (k = 1).
    Replica = 1,
    /// GF(2^8), polynomial 0x11d, Cauchy matrix as ISA-L's `gf_gen_cauchy1_matrix`.
    Gf8Cauchy = 2,
    /// GF(2^16) as reed-solomon-simd 3, for k + m > 32.
    Gf16Simd = 3,
}

impl Codec {
    /// The codec a new stripe of `code` gets.
    pub fn for_code(code: Code) -> Codec {
        match (code.k, code.n()) {
            (1, _) => Codec::Replica,
            (_, n) if n <= 32 => Codec::Gf8Cauchy,
            _ => Codec::Gf16Simd,
        }
    }
    pub fn from_u8(n: u8) -> Option<Codec> {
        Some(match n {
            1 => Codec::Replica,
            2 => Codec::Gf8Cauchy,
            3 => Codec::Gf16Simd,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_narrow_to_what_fits_and_never_to_a_single_copy() {
        let c: Code = "4+2".parse().unwrap();
        let narrowed: Vec<_> = (0..=6).map(|up| c.narrowed(up).map(|c| c.to_string())).collect();
        let want = [None, None, Some("1+1"), Some("1+2"), Some("2+2"), Some("2+2"), Some("4+2")];
        assert_eq!(narrowed, want.map(|o| o.map(str::to_string)));
        assert_eq!(Code::new(1, 0).narrowed(1), Some(Code::new(1, 0)));
        assert!(c.carried_by(6).is_ok() && Code::new(1, 0).carried_by(1).is_ok());
        assert!(c.carried_by(5).unwrap_err().contains("4+2 needs 6 OSDs and there are 5"));
        assert!("0+2".parse::<Code>().is_err() && "4".parse::<Code>().is_err() && "4+9".parse::<Code>().is_err());
    }
}
