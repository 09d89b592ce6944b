//! The frequencies by which positions turn heads, computed from what `config.json` says of them.

use serde_json::Value;
use sf_base::Rope;

use super::facts::Facts;
use crate::error::ConvertError;

const KEY: &str = "rope_scaling";
const TRAINED: &str = "original_max_position_embeddings";

/// What a family takes for granted.
#[derive(Clone, Copy)]
pub(super) struct Usual {
    pub(super) theta: f64,
    /// Of layers with a window; `None` = as the others.
    pub(super) local: Option<f64>,
}

/// Of layers that see everything, and of those that see a window. `divisors`: one for each pair of the former.
pub(super) fn ropes(
    facts: Facts<'_>,
    head_dim: u32,
    usual: Usual,
    divisors: Option<&[f32]>,
) -> Result<(Rope, Rope), ConvertError> {
    for key in ["rope_interleaved", "rope_traditional"] {
        if facts.flag(key)? == Some(true) {
            return Err(facts.fault(key, "is true, such heads are not packed"));
        }
    }
    // Newer files keep all of it in one block, or in one for each kind of layer.
    let block = facts.value("rope_parameters");
    let whole = block.map(|block| block.get("full_attention").unwrap_or(block));
    let in_block = |block: Option<&Value>, name: &str| {
        facts.number_of(&format!("rope_parameters.{name}"), block.and_then(|block| block.get(name)))
    };
    let share = match in_block(whole, "partial_rotary_factor")? {
        Some(share) => Some(share),
        None => facts.number("partial_rotary_factor")?,
    };
    let turned = turned(facts, share, head_dim)?;
    let base = match in_block(whole, "rope_theta")? {
        Some(base) => base,
        None => facts.number("rope_theta")?.unwrap_or(usual.theta),
    };
    let mut rope = plain(base, turned);
    if let Some(block) = facts.value(KEY).or(whole) {
        Scaling { facts, block, base }.apply(&mut rope)?;
    }
    if let Some(divisors) = divisors {
        divide(&mut rope, divisors)?;
    }
    let local = match in_block(block.and_then(|block| block.get("sliding_attention")), "rope_theta")? {
        Some(local) => Some(local),
        None => facts.number("rope_local_base_freq")?.or(usual.local),
    };
    let window = local.map_or_else(|| rope.clone(), |local| plain(local, turned));
    Ok((rope, window))
}

fn plain(base: f64, turned: u32) -> Rope {
    let size = f64::from(turned);
    let pair = |pair| base.powf(-2.0 * f64::from(pair) / size);
    Rope { inv_freq: (0..turned / 2).map(pair).collect(), scale: 1.0 }
}

fn divide(rope: &mut Rope, divisors: &[f32]) -> Result<(), ConvertError> {
    let fault = |why: String| ConvertError::tensor("rope_freqs.weight", why);
    if divisors.len() != rope.inv_freq.len() {
        let why = format!("has {} elements, {} pairs are turned", divisors.len(), rope.inv_freq.len());
        return Err(fault(why));
    }
    for (frequency, &divisor) in rope.inv_freq.iter_mut().zip(divisors) {
        if !divisor.is_finite() || divisor <= 0.0 {
            return Err(fault(format!("has {divisor}, nothing is divided by that")));
        }
        *frequency /= f64::from(divisor);
    }
    Ok(())
}

fn turned(facts: Facts<'_>, share: Option<f64>, head_dim: u32) -> Result<u32, ConvertError> {
    let key = "partial_rotary_factor";
    let turned = match share {
        None => head_dim,
        Some(share) if share <= 1.0 => (f64::from(head_dim) * share) as u32,
        Some(share) => return Err(facts.fault(key, format!("is {share}, at most 1"))),
    };
    if turned == 0 || !turned.is_multiple_of(2) {
        return Err(facts.fault(key, format!("turns {turned} elements, not pairs")));
    }
    Ok(turned)
}

/// How a model's window was extended beyond what it was trained on first.
struct Scaling<'a> {
    facts: Facts<'a>,
    block: &'a Value,
    base: f64,
}

impl Scaling<'_> {
    fn apply(&self, rope: &mut Rope) -> Result<(), ConvertError> {
        let kind = self.block.get("rope_type").or_else(|| self.block.get("type")).and_then(Value::as_str);
        match kind.unwrap_or("nothing") {
            "default" => Ok(()),
            "linear" => {
                let factor = self.must("factor")?;
                rope.inv_freq.iter_mut().for_each(|frequency| *frequency /= factor);
                Ok(())
            }
            "llama3" => self.llama3(rope),
            "yarn" => self.yarn(rope),
            kind => {
                let why = format!("has type {kind}; default, linear, llama3 and yarn are packed");
                Err(self.facts.fault(KEY, why))
            }
        }
    }

    fn part(&self, name: &str) -> Result<Option<f64>, ConvertError> {
        self.facts.number_of(&format!("{KEY}.{name}"), self.block.get(name))
    }

    fn must(&self, name: &str) -> Result<f64, ConvertError> {
        self.part(name)?.ok_or_else(|| self.facts.fault(&format!("{KEY}.{name}"), "is missing"))
    }

    /// Some files keep it outside of the block.
    fn trained(&self) -> Result<Option<f64>, ConvertError> {
        let given = match self.part(TRAINED)? {
            Some(given) => Some(given),
            None => self.facts.number(TRAINED)?,
        };
        match given {
            Some(given) if given < 2.0 => {
                Err(self.facts.fault(&format!("{KEY}.{TRAINED}"), format!("is {given}, no window")))
            }
            given => Ok(given),
        }
    }

    /// Pairs that turn often within the trained window stay, those that hardly turn are stretched, with a ramp between.
    fn llama3(&self, rope: &mut Rope) -> Result<(), ConvertError> {
        let factor = self.must("factor")?;
        let (low, high) = (self.must("low_freq_factor")?, self.must("high_freq_factor")?);
        let trained = self.trained()?;
        let trained = trained.ok_or_else(|| self.facts.fault(&format!("{KEY}.{TRAINED}"), "is missing"))?;
        if high <= low {
            return Err(self.facts.fault(KEY, "has high_freq_factor not above low_freq_factor"));
        }
        for frequency in &mut rope.inv_freq {
            let turns = trained * *frequency / std::f64::consts::TAU;
            let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
            *frequency *= kept + (1.0 - kept) / factor;
        }
        Ok(())
    }

    /// YaRN (arXiv 2309.00071).
    fn yarn(&self, rope: &mut Rope) -> Result<(), ConvertError> {
        let factor = self.must("factor")?;
        let trained = match self.trained()? {
            Some(given) => given,
            None => f64::from(self.facts.must("max_position_embeddings")?),
        };
        let (fast, slow) = (self.part("beta_fast")?.unwrap_or(32.0), self.part("beta_slow")?.unwrap_or(1.0));
        let turned = 2.0 * rope.inv_freq.len() as f64;
        // The pair that turns so often within the trained window.
        let pair =
            |turns: f64| turned * (trained / (turns * std::f64::consts::TAU)).ln() / (2.0 * self.base.ln());
        let (mut first, mut last) = (pair(fast), pair(slow));
        if self.block.get("truncate") != Some(&Value::Bool(false)) {
            (first, last) = (first.floor(), last.ceil());
        }
        let (first, last) = (first.max(0.0), last.min(turned - 1.0));
        let width = if last > first { last - first } else { 0.001 };
        for (pair, frequency) in rope.inv_freq.iter_mut().enumerate() {
            let stretched = ((pair as f64 - first) / width).clamp(0.0, 1.0);
            *frequency *= 1.0 - stretched + stretched / factor;
        }
        let growth = |by: f64| if factor > 1.0 { 0.1 * by * factor.ln() + 1.0 } else { 1.0 };
        rope.scale = match self.part("attention_factor")? {
            Some(given) => given,
            None => match (self.part("mscale")?, self.part("mscale_all_dim")?) {
                (Some(one), Some(all)) => growth(one) / growth(all),
                _ => growth(1.0),
            },
        };
        Ok(())
    }
}
