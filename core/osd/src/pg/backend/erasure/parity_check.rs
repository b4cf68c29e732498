//! Whether the shards of an object fit together, by checksums alone: no data travels.
//!
//! A checksum that starts from zero is linear: that of a sum is the sum of the checksums. So where shards
//! fulfil an equation, their checksums do, each of the shard times its factor. Every member computes the
//! checksums for the factors of its shard; the sums of all members tell which equations hold.
//!
//! If some does not, the shards are checked again, for each shard with the equations that the other shards
//! alone must fulfil. The wrong shard is the only one without which the others fit. That takes two parity
//! shards at least.

use super::Geometry;

/// The sum of the shards, each times its factor, is zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Equation {
    /// The shard that it says something of if it is the wrong one: it is not in the equation. None: parity is
    /// that of the data.
    pub without: Option<usize>,
    /// For each shard.
    pub factors: Vec<u8>,
}

/// More are not checked: a shard that is wrong is reported without its number then.
const EQUATIONS_MAX: usize = 1024;

/// What holds if parity is that of the data.
pub fn parity_equations(geometry: &Geometry) -> Vec<Equation> {
    let code = &geometry.code;
    let equation = |parity: usize| {
        let mut factors = vec![0; code.shards()];
        for part in 0..code.data_shards() {
            factors[code.data_shard(part)] = code.factor(parity, part);
        }
        factors[parity] = 1;
        Equation { without: None, factors }
    };
    code.parities().map(equation).collect()
}

/// What holds if one shard alone is wrong, for each of them, and what holds if none is.
pub fn locating_equations(geometry: &Geometry) -> Vec<Equation> {
    let code = &geometry.code;
    let mut equations = parity_equations(geometry);
    for without in 0..code.shards() {
        for computed in (0..code.shards()).filter(|shard| *shard != without) {
            let is_source = |shard: &usize| *shard != without && *shard != computed;
            let sources: Vec<usize> = (0..code.shards()).filter(is_source).collect();
            let Some(plan) = code.plan(&[computed], &sources) else { continue };
            let mut factors = vec![0; code.shards()];
            for (source, factor) in plan.sources.iter().zip(&plan.factors[0]) {
                factors[*source] = *factor;
            }
            factors[computed] = 1;
            equations.push(Equation { without: Some(without), factors });
        }
    }
    if equations.len() > EQUATIONS_MAX {
        equations.truncate(code.shards() - code.data_shards());
    }
    equations
}

/// What checksums say of the shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// They fit together.
    Whole,
    /// This one is wrong.
    Wrong(usize),
    /// Some is.
    Unknown,
}

/// `products`: for each shard its checksums, one for each equation.
pub fn judge(equations: &[Equation], products: &[Vec<u32>]) -> Fit {
    let holds = |at: usize| products.iter().fold(0, |sum, of_shard| sum ^ of_shard[at]) == 0;
    let of = |without: Option<usize>| {
        equations.iter().enumerate().filter(move |(_, equation)| equation.without == without)
    };
    if of(None).all(|(at, _)| holds(at)) {
        return Fit::Whole;
    }
    let may_be_wrong = |shard: &usize| {
        let mut ours = of(Some(*shard)).peekable();
        ours.peek().is_some() && ours.all(|(at, _)| holds(at))
    };
    let mut wrong = (0..products.len()).filter(may_be_wrong);
    match (wrong.next(), wrong.next()) {
        (Some(shard), None) => Fit::Wrong(shard),
        _ => Fit::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_erasure::code::Code;
    use nacre_erasure::kernel::Kernel;
    use nacre_wire::crc32c;

    fn fit(code: Code, wrong: &[usize]) -> Fit {
        let geometry = Geometry { code };
        let code = &geometry.code;
        let data: Vec<Vec<u8>> =
            (0..code.data_shards()).map(|n| (0..999).map(|at| (at * (n + 3)) as u8).collect()).collect();
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut shards: Vec<Vec<u8>> = vec![vec![0; 999]; code.shards()];
        (0..code.shards()).for_each(|shard| code.encode(&data, shard, &mut shards[shard]));
        for (n, shard) in wrong.iter().enumerate() {
            shards[*shard][500 + n] ^= 17;
        }
        let equations = locating_equations(&geometry);
        let product = |factor: u8, shard: &[u8]| {
            let mut bytes = vec![0; shard.len()];
            Kernel::best().add_products(&[(factor, shard)], &mut bytes);
            crc32c(0, &bytes)
        };
        let products: Vec<Vec<u32>> = (shards.iter().enumerate())
            .map(|(n, shard)| equations.iter().map(|one| product(one.factors[n], shard)).collect())
            .collect();
        judge(&equations, &products)
    }

    #[test]
    fn wrong_shard_is_found_if_there_are_two_parities() {
        for (k, m) in [(4, 2), (2, 2), (3, 3), (8, 4)] {
            assert_eq!(fit(Code::reed_solomon(k, m), &[]), Fit::Whole);
            for shard in 0..k + m {
                assert_eq!(fit(Code::reed_solomon(k, m), &[shard]), Fit::Wrong(shard), "{k}+{m}");
            }
        }
    }

    #[test]
    fn no_shard_is_blamed_where_it_cannot_be_known() {
        for shard in 0..3 {
            assert_eq!(fit(Code::reed_solomon(2, 1), &[shard]), Fit::Unknown);
        }
        assert_eq!(fit(Code::reed_solomon(4, 2), &[0, 3]), Fit::Unknown);
    }

    #[test]
    fn shards_of_layered_codes_are_checked() {
        let layers = [(vec![0, 1, 4, 5], vec![2, 6]), (vec![0, 1, 2], vec![3]), (vec![4, 5, 6], vec![7])];
        let code = Code::layered(8, vec![0, 1, 4, 5], &layers).unwrap();
        assert_eq!(fit(code.clone(), &[]), Fit::Whole);
        for shard in 0..8 {
            assert_eq!(fit(code.clone(), &[shard]), Fit::Wrong(shard));
        }
    }
}
