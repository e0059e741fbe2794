//! Random choices from a seed.

use serde_json::{Map, Value};

/// A sequence of random numbers (SplitMix64).
pub struct Random(u64);

// === impl Random ===

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap_or(0)
    }

    /// True in `percent` of all cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// A random value of a form.
    ///
    /// `{"?": [...]}` is one of these; `{"*": [...]}` some of them in any order; `{"+": {...}}` an object with some of
    /// these fields; other objects and lists have all their parts.
    pub fn value(&mut self, form: &Value) -> Value {
        match form {
            Value::Object(fields) => {
                if let Some(Value::Array(all)) = fields.get("?") {
                    let one = self.pick(all).clone();
                    return self.value(&one);
                }
                if let Some(Value::Array(all)) = fields.get("*") {
                    return Value::Array(self.some(all));
                }
                if let Some(Value::Object(all)) = fields.get("+") {
                    let mut some = Map::new();
                    for (name, form) in all {
                        if self.chance(45) {
                            some.insert(name.clone(), self.value(form));
                        }
                    }
                    return Value::Object(some);
                }
                let all = fields
                    .iter()
                    .map(|(name, form)| (name.clone(), self.value(form)));
                Value::Object(all.collect())
            }
            Value::Array(items) => items.iter().map(|form| self.value(form)).collect(),
            scalar => scalar.clone(),
        }
    }

    fn some(&mut self, all: &[Value]) -> Vec<Value> {
        let mut left: Vec<&Value> = all.iter().collect();
        let mut some = Vec::new();
        while !left.is_empty() {
            let one = left.remove(self.below(left.len()));
            if self.chance(50) {
                some.push(self.value(one));
            }
        }
        some
    }
}
