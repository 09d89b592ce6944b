//! How a head is turned by its position: the frequencies of each pair, and their sines and cosines for a step.

use serde_json::Value;

use crate::config::{Reader, number};
use crate::error::ModelError;

/// The angles per position, one for each pair of elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    frequencies: Vec<f64>,
}

impl Rope {
    /// For layers that look at everything, and for those that look through a window.
    pub(crate) fn read(reader: &Reader<'_>, head_dim: u32) -> Result<(Rope, Rope), ModelError> {
        if reader.flag("rope_interleaved")? == Some(true) || reader.flag("rope_traditional")? == Some(true) {
            return Err(ModelError::unsupported("rope_interleaved", "is true, which is not computed here"));
        }
        let turned = match reader.number_if("partial_rotary_factor")? {
            None => head_dim,
            Some(share) if share <= 1.0 => (f64::from(head_dim) * share) as u32,
            Some(share) => {
                return Err(ModelError::config("partial_rotary_factor", format!("is {share}, at most 1")));
            }
        };
        if turned == 0 || !turned.is_multiple_of(2) {
            return Err(ModelError::config(
                "partial_rotary_factor",
                format!("turns {turned} elements, not pairs"),
            ));
        }
        // Newer files keep all of it in one block, or in one for each kind of layer.
        let block = reader.value("rope_parameters");
        let whole_block = block.map(|block| block.get("full_attention").unwrap_or(block));
        let base_of = |block: Option<&Value>| {
            number("rope_parameters.rope_theta", block.and_then(|block| block.get("rope_theta")))
        };
        let base = match base_of(whole_block)? {
            Some(base) => base,
            None => reader.number_if("rope_theta")?.unwrap_or(10_000.0),
        };
        let mut whole = Rope::plain(base, turned);
        if let Some(scaling) = reader.value("rope_scaling").or(whole_block) {
            whole.scale(scaling)?;
        }
        let local = match base_of(block.and_then(|block| block.get("sliding_attention")))? {
            Some(local) => Some(local),
            None => reader.number_if("rope_local_base_freq")?,
        };
        let window = local.map_or_else(|| whole.clone(), |local| Rope::plain(local, turned));
        Ok((whole, window))
    }

    fn plain(base: f64, turned: u32) -> Rope {
        let turned = f64::from(turned);
        let pairs = (turned / 2.0) as u32;
        Rope { frequencies: (0..pairs).map(|pair| base.powf(-2.0 * f64::from(pair) / turned)).collect() }
    }

    fn scale(&mut self, scaling: &Value) -> Result<(), ModelError> {
        let key = "rope_scaling";
        let kind = scaling.get("rope_type").or_else(|| scaling.get("type")).and_then(Value::as_str);
        let part = |name: &str| {
            let full = format!("{key}.{name}");
            number(&full, scaling.get(name))?.ok_or_else(|| ModelError::config(&full, "is missing"))
        };
        match kind {
            Some("default") => {}
            Some("linear") => {
                let factor = part("factor")?;
                self.frequencies.iter_mut().for_each(|frequency| *frequency /= factor);
            }
            Some("llama3") => {
                let (factor, low, high) =
                    (part("factor")?, part("low_freq_factor")?, part("high_freq_factor")?);
                let trained = part("original_max_position_embeddings")?;
                if high <= low {
                    return Err(ModelError::config(key, "has high_freq_factor not above low_freq_factor"));
                }
                for frequency in &mut self.frequencies {
                    let turns = trained * *frequency / std::f64::consts::TAU;
                    let share = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                    *frequency = (1.0 - share) * *frequency / factor + share * *frequency;
                }
            }
            other => {
                let kind = other.unwrap_or("nothing");
                return Err(ModelError::unsupported(
                    key,
                    format!("has type {kind}; default, linear and llama3 are computed"),
                ));
            }
        }
        Ok(())
    }

    /// Elements of a head that are turned.
    pub fn turned(&self) -> u32 {
        2 * u32::try_from(self.frequencies.len()).expect("a head is far below 2^32")
    }

    /// Appends the cosines and then the sines of one position.
    pub fn push(&self, position: u32, table: &mut Vec<f32>) {
        let angle = |frequency: &f64| f64::from(position) * frequency;
        table.extend(self.frequencies.iter().map(|frequency| angle(frequency).cos() as f32));
        table.extend(self.frequencies.iter().map(|frequency| angle(frequency).sin() as f32));
    }
}
