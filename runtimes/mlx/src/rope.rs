//! How a head is turned by its position: the frequencies of each pair, and their sines and cosines for a step.

use serde_json::Value;

use crate::config::{Reader, number};
use crate::error::ModelError;

/// The angles per position, one for each pair of elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    frequencies: Vec<f64>,
    /// Instead of `frequencies` in a window of at most so many positions.
    short: Option<(u32, Vec<f64>)>,
    /// What is turned is also multiplied by it.
    scale: f64,
}

impl Rope {
    /// For layers that look at everything, and for those that look through a window.
    pub(crate) fn read(reader: &Reader<'_>, head_dim: u32) -> Result<(Rope, Rope), ModelError> {
        if reader.flag("rope_interleaved")? == Some(true) || reader.flag("rope_traditional")? == Some(true) {
            return Err(ModelError::unsupported("rope_interleaved", "is true, which is not computed here"));
        }
        // Newer files keep all of it in one block, or in one for each kind of layer.
        let block = reader.value("rope_parameters");
        let whole_block = block.map(|block| block.get("full_attention").unwrap_or(block));
        let in_block = |block: Option<&Value>, name: &str| {
            number(&format!("rope_parameters.{name}"), block.and_then(|block| block.get(name)))
        };
        let share = match in_block(whole_block, "partial_rotary_factor")? {
            Some(share) => Some(share),
            None => reader.number_if("partial_rotary_factor")?,
        };
        let turned = turned(share, head_dim)?;
        let base = match in_block(whole_block, "rope_theta")? {
            Some(base) => base,
            None => reader.number_if("rope_theta")?.unwrap_or(10_000.0),
        };
        let mut whole = Rope::plain(base, turned);
        if let Some(block) = reader.value("rope_scaling").or(whole_block) {
            whole.extend(&Scaling { reader, block, base })?;
        }
        let local = match in_block(block.and_then(|block| block.get("sliding_attention")), "rope_theta")? {
            Some(local) => Some(local),
            None => reader.number_if("rope_local_base_freq")?,
        };
        let window = local.map_or_else(|| whole.clone(), |local| Rope::plain(local, turned));
        Ok((whole, window))
    }

    fn plain(base: f64, turned: u32) -> Rope {
        let turned = f64::from(turned);
        let pairs = (turned / 2.0) as u32;
        let frequencies = (0..pairs).map(|pair| base.powf(-2.0 * f64::from(pair) / turned)).collect();
        Rope { frequencies, short: None, scale: 1.0 }
    }

    /// For windows beyond what the model was trained on first.
    fn extend(&mut self, scaling: &Scaling<'_>) -> Result<(), ModelError> {
        match scaling.kind() {
            "default" => Ok(()),
            "linear" => {
                let factor = scaling.part("factor")?;
                self.frequencies.iter_mut().for_each(|frequency| *frequency /= factor);
                Ok(())
            }
            "llama3" => self.extend_as_llama3(scaling),
            "yarn" => self.extend_by_yarn(scaling),
            "longrope" | "su" => self.extend_by_factors(scaling),
            kind => Err(ModelError::unsupported(
                KEY,
                format!("has type {kind}; default, linear, llama3, longrope and yarn are computed"),
            )),
        }
    }

    fn extend_as_llama3(&mut self, scaling: &Scaling<'_>) -> Result<(), ModelError> {
        let factor = scaling.part("factor")?;
        let (low, high) = (scaling.part("low_freq_factor")?, scaling.part("high_freq_factor")?);
        let trained = scaling.trained()?;
        if high <= low {
            return Err(ModelError::config(KEY, "has high_freq_factor not above low_freq_factor"));
        }
        for frequency in &mut self.frequencies {
            let turns = trained * *frequency / std::f64::consts::TAU;
            let share = ((turns - low) / (high - low)).clamp(0.0, 1.0);
            *frequency = (1.0 - share) * *frequency / factor + share * *frequency;
        }
        Ok(())
    }

    /// YaRN (arXiv 2309.00071): pairs that turn often within the trained window stay as they are, those that turn less than
    /// once are stretched, and a ramp lies between. What is turned grows with the logarithm of the factor.
    fn extend_by_yarn(&mut self, scaling: &Scaling<'_>) -> Result<(), ModelError> {
        let factor = scaling.part("factor")?;
        let trained = match scaling.reader.number_if("max_position_embeddings")? {
            Some(most) if scaling.trained_if()?.is_none() => most,
            _ => scaling.trained()?,
        };
        let or = |name: &str, usual: f64| scaling.part_if(name).map(|given| given.unwrap_or(usual));
        let (fast, slow) = (or("beta_fast", 32.0)?, or("beta_slow", 1.0)?);
        let turned = 2.0 * self.frequencies.len() as f64;
        let pair_of = |turns: f64| {
            turned * (trained / (turns * std::f64::consts::TAU)).ln() / (2.0 * scaling.base.ln())
        };
        let (mut first, mut last) = (pair_of(fast), pair_of(slow));
        if scaling.block.get("truncate") != Some(&Value::Bool(false)) {
            (first, last) = (first.floor(), last.ceil());
        }
        let (first, last) = (first.max(0.0), last.min(turned - 1.0));
        let width = if last > first { last - first } else { 0.001 };
        for (pair, frequency) in self.frequencies.iter_mut().enumerate() {
            let share = ((pair as f64 - first) / width).clamp(0.0, 1.0);
            *frequency = *frequency * (1.0 - share) + *frequency / factor * share;
        }
        let growth = |by: f64| if factor > 1.0 { 0.1 * by * factor.ln() + 1.0 } else { 1.0 };
        self.scale = match scaling.part_if("attention_factor")? {
            Some(given) => given,
            None => match (scaling.part_if("mscale")?, scaling.part_if("mscale_all_dim")?) {
                (Some(one), Some(all)) => growth(one) / growth(all),
                _ => growth(1.0),
            },
        };
        Ok(())
    }

    /// LongRoPE (arXiv 2402.13753): a factor for each pair, other ones for windows no longer than the trained one.
    fn extend_by_factors(&mut self, scaling: &Scaling<'_>) -> Result<(), ModelError> {
        for unknown in ["short_mscale", "long_mscale"] {
            if scaling.block.get(unknown).is_some_and(|value| !value.is_null()) {
                let full = format!("{KEY}.{unknown}");
                return Err(ModelError::unsupported(&full, "is set, which is not computed here"));
            }
        }
        let trained = scaling.trained()?;
        let short = self.divided(&scaling.factors("short_factor", self.frequencies.len())?);
        self.frequencies = self.divided(&scaling.factors("long_factor", self.frequencies.len())?);
        self.short = Some((trained as u32, short));
        let most = scaling.reader.number_if("max_position_embeddings")?.unwrap_or(trained);
        self.scale = match scaling.part_if("attention_factor")? {
            Some(given) => given,
            None if most > trained => (1.0 + (most / trained).ln() / trained.ln()).sqrt(),
            None => 1.0,
        };
        Ok(())
    }

    fn divided(&self, factors: &[f64]) -> Vec<f64> {
        self.frequencies.iter().zip(factors).map(|(frequency, factor)| frequency / factor).collect()
    }

    /// As it is in a window of so many positions.
    #[must_use]
    pub fn within(mut self, window: u32) -> Rope {
        if let Some((most, short)) = self.short.take()
            && window <= most
        {
            self.frequencies = short;
        }
        self
    }

    /// Elements of a head that are turned.
    pub fn turned(&self) -> u32 {
        2 * u32::try_from(self.frequencies.len()).expect("a head is far below 2^32")
    }

    /// Appends the cosines and then the sines of one position.
    pub fn push(&self, position: u32, table: &mut Vec<f32>) {
        let angle = |frequency: &f64| f64::from(position) * frequency;
        table.extend(self.frequencies.iter().map(|frequency| (self.scale * angle(frequency).cos()) as f32));
        table.extend(self.frequencies.iter().map(|frequency| (self.scale * angle(frequency).sin()) as f32));
    }
}

const KEY: &str = "rope_scaling";
const TRAINED: &str = "original_max_position_embeddings";

/// How a model's window was extended.
struct Scaling<'a> {
    reader: &'a Reader<'a>,
    block: &'a Value,
    base: f64,
}

impl Scaling<'_> {
    fn kind(&self) -> &str {
        let kind = self.block.get("rope_type").or_else(|| self.block.get("type"));
        kind.and_then(Value::as_str).unwrap_or("nothing")
    }

    fn part_if(&self, name: &str) -> Result<Option<f64>, ModelError> {
        number(&format!("{KEY}.{name}"), self.block.get(name).filter(|value| !value.is_null()))
    }

    fn part(&self, name: &str) -> Result<f64, ModelError> {
        self.part_if(name)?.ok_or_else(|| ModelError::config(&format!("{KEY}.{name}"), "is missing"))
    }

    /// Positions that the model was trained on before its window was extended; some files keep it outside of the block.
    fn trained_if(&self) -> Result<Option<f64>, ModelError> {
        let given = match self.part_if(TRAINED)? {
            Some(given) => Some(given),
            None => self.reader.number_if(TRAINED)?,
        };
        match given {
            Some(given) if given < 2.0 || given > f64::from(u32::MAX) => {
                Err(ModelError::config(&format!("{KEY}.{TRAINED}"), format!("is {given}, no window")))
            }
            given => Ok(given),
        }
    }

    fn trained(&self) -> Result<f64, ModelError> {
        self.trained_if()?.ok_or_else(|| ModelError::config(&format!("{KEY}.{TRAINED}"), "is missing"))
    }

    fn factors(&self, name: &str, count: usize) -> Result<Vec<f64>, ModelError> {
        let full = format!("{KEY}.{name}");
        let list = self.block.get(name).and_then(Value::as_array);
        let list = list.ok_or_else(|| ModelError::config(&full, "is no list of factors"))?;
        if list.len() != count {
            let why = format!("has {} factors, {count} pairs are turned", list.len());
            return Err(ModelError::config(&full, why));
        }
        list.iter().filter_map(|value| number(&full, Some(value)).transpose()).collect()
    }
}

fn turned(share: Option<f64>, head_dim: u32) -> Result<u32, ModelError> {
    let key = "partial_rotary_factor";
    let turned = match share {
        None => head_dim,
        Some(share) if share <= 1.0 => (f64::from(head_dim) * share) as u32,
        Some(share) => return Err(ModelError::config(key, format!("is {share}, at most 1"))),
    };
    if turned == 0 || !turned.is_multiple_of(2) {
        return Err(ModelError::config(key, format!("turns {turned} elements, not pairs")));
    }
    Ok(turned)
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    const PLAIN: &str = r#""model_type":"phi3","hidden_size":64,"num_hidden_layers":1,"num_attention_heads":4,"vocab_size":64,
        "intermediate_size":96,"max_position_embeddings":128"#;

    fn config(more: &str) -> Result<Config, String> {
        Config::parse(&format!("{{{PLAIN},{more}}}")).map_err(|error| error.to_string())
    }

    fn row(config: &Config, position: u32) -> Vec<f32> {
        let mut table = Vec::new();
        config.rope.push(position, &mut table);
        table
    }

    #[test]
    fn the_part_that_is_turned_may_stand_in_the_newer_block() {
        let old = config(r#""partial_rotary_factor":0.5,"rope_theta":5000.0"#).expect("it is computed");
        let block =
            r#""rope_parameters":{"rope_type":"default","rope_theta":5000.0,"partial_rotary_factor":0.5}"#;
        let new = config(block).expect("it is computed");
        assert_eq!((new.rope.turned(), &new.rope), (8, &old.rope));
        let error = config(r#""rope_parameters":{"rope_type":"default","partial_rotary_factor":1.5}"#);
        assert_eq!(error.err().as_deref(), Some("config.json: partial_rotary_factor is 1.5, at most 1"));
    }

    #[test]
    fn a_short_window_has_its_own_factors() {
        let with = |short: &str, long: &str| {
            let block = r#""original_max_position_embeddings":32,"rope_scaling":{"type":"longrope""#;
            config(&format!(r#"{block},"short_factor":{short},"long_factor":{long}}}"#))
                .expect("it is computed")
        };
        let (ones, twos) = ("[1,1,1,1,1,1,1,1]", "[2,2,2,2,2,2,2,2]");
        let (mut short, mut long, other) = (with(ones, twos), with(ones, twos), with(twos, ones));
        short.extend_to(32);
        long.extend_to(33);
        assert_eq!(row(&short, 7), row(&other, 7));
        assert_ne!(row(&short, 7), row(&long, 7));
        // Twice as far, half as fast.
        assert_eq!(row(&short, 7), row(&long, 14));
    }

    #[test]
    fn factors_that_do_not_fit_are_refused_by_name() {
        let check = |block: &str, expect: &str| {
            let trained = r#""original_max_position_embeddings":32"#;
            let error = config(&format!(r#"{trained},"rope_scaling":{{{block}}}"#)).expect_err(block);
            assert_eq!(error, format!("config.json: rope_scaling{expect}"));
        };
        check(r#""type":"longrope","short_factor":[1]"#, ".short_factor has 1 factors, 8 pairs are turned");
        check(r#""type":"longrope""#, ".short_factor is no list of factors");
        check(
            r#""type":"longrope","short_factor":[1,1,1,1,1,1,1,0],"long_factor":[]"#,
            ".short_factor is 0, not a positive number",
        );
        check(r#""type":"longrope","long_mscale":1.1"#, ".long_mscale is set, which is not computed here");
        check(r#""type":"yarn""#, ".factor is missing");
        check(r#""type":"llama3","factor":8"#, ".low_freq_factor is missing");
    }
}
