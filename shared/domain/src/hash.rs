//! Hash functions whose results never change.
//!
//! Processes of different versions must compute the same numbers, and stored keys may depend on them. The functions
//! therefore never change their results; a better function gets a new name.

/// FNV-1a with 64 bits. Its low bits are weak, so a modulus needs [`mix64`] first.
///
/// ```
/// use dueline_domain::hash::fnv1a;
/// assert_eq!(fnv1a(*b"foobar"), 0x8594_4171_f739_67e8);
/// ```
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Spreads each bit of a number over all 64 bits: the finaliser of SplitMix64. Different numbers give different
/// results.
///
/// ```
/// use dueline_domain::hash::mix64;
/// assert_eq!(mix64(0x9e37_79b9_7f4a_7c15), 0xe220_a839_7b1d_cdaf);
/// ```
pub const fn mix64(number: u64) -> u64 {
    let z = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv1a_gives_its_published_results() {
        let published = [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ];
        for (text, hash) in published {
            assert_eq!(fnv1a(text.bytes()), hash, "{text:?}");
        }
    }

    #[test]
    fn mix64_gives_the_published_numbers_of_splitmix64() {
        let stride = 0x9e37_79b9_7f4a_7c15_u64;
        let numbers = [1, 2, 3].map(|n| mix64(stride.wrapping_mul(n)));
        let published = [
            0xe220_a839_7b1d_cdaf,
            0x6e78_9e6a_a1b9_65f4,
            0x06c4_5d18_8009_454f,
        ];
        assert_eq!(numbers, published);
    }
}
