//! Many seeds.

/// What came of trying seeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exploration<F> {
    /// Seeds tried, the failing one included.
    pub tried: u64,
    /// The first seed that failed, and how.
    pub failure: Option<(u64, F)>,
}

/// Runs seeds in order until one fails.
pub fn explore<F>(
    seeds: impl IntoIterator<Item = u64>,
    mut run: impl FnMut(u64) -> Result<(), F>,
) -> Exploration<F> {
    let mut tried = 0;
    for seed in seeds {
        tried += 1;
        if let Err(failure) = run(seed) {
            return Exploration {
                tried,
                failure: Some((seed, failure)),
            };
        }
    }
    Exploration {
        tried,
        failure: None,
    }
}
