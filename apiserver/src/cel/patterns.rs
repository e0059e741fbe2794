//! `matches`, `find` and `findAll` with Go's patterns, each compiled once and not for each item of a list.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::extractors::{Arguments, This};
use kube_cel::cel::{Context, ExecutionError, Value as CelValue};
use regex::Regex;

use super::meter::pay;
use crate::schema::Pattern;

/// Cost of compiling a pattern.
const COMPILATION: u64 = 1000;

/// Number of cached patterns for each thread.
const KEPT: usize = 128;

thread_local! {
    static COMPILED: RefCell<HashMap<String, Regex>> = RefCell::new(HashMap::new());
}

/// Adds the functions, in place of those of the crates.
pub(super) fn add_functions(context: &mut Context<'_>) {
    context.add_function("matches", matches);
    context.add_function("find", find);
    context.add_function("findAll", find_all);
}

fn compiled(pattern: &str) -> Result<Regex, ExecutionError> {
    if let Some(known) = COMPILED.with_borrow(|compiled| compiled.get(pattern).cloned()) {
        return Ok(known);
    }
    pay(COMPILATION)?;
    let expression =
        Pattern::compile(pattern).map_err(|why| ExecutionError::function_error("matches", why))?;
    COMPILED.with_borrow_mut(|compiled| {
        if compiled.len() >= KEPT {
            compiled.clear();
        }
        compiled.insert(pattern.to_owned(), expression.clone());
    });
    Ok(expression)
}

fn matches(
    This(text): This<Arc<String>>,
    pattern: Arc<String>,
) -> Result<CelValue, ExecutionError> {
    Ok(CelValue::Bool(compiled(&pattern)?.is_match(&text)))
}

fn find(This(text): This<Arc<String>>, pattern: Arc<String>) -> Result<CelValue, ExecutionError> {
    let found = compiled(&pattern)?
        .find(&text)
        .map_or("", |found| found.as_str())
        .to_owned();
    Ok(CelValue::String(Arc::new(found)))
}

/// With a number as the second argument, at most that many; with a negative one, all.
fn find_all(
    This(text): This<Arc<String>>,
    Arguments(arguments): Arguments,
) -> Result<CelValue, ExecutionError> {
    let (pattern, most) = match arguments.as_slice() {
        [CelValue::String(pattern)] => (pattern, usize::MAX),
        [CelValue::String(pattern), CelValue::Int(most)] => {
            (pattern, usize::try_from(*most).unwrap_or(usize::MAX))
        }
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    let expression = compiled(pattern)?;
    let found = expression.find_iter(&text).take(most);
    let found = found.map(|found| CelValue::String(Arc::new(found.as_str().to_owned())));
    Ok(CelValue::List(Arc::new(found.collect())))
}

#[cfg(test)]
mod tests {
    use super::super::compile::compile_then;
    use super::super::meter::Metered;
    use super::*;

    fn evaluated(text: &str) -> (Result<CelValue, ExecutionError>, u64) {
        let mut context = super::super::evaluate::functions();
        let texts = (0..900).map(|at| CelValue::String(Arc::new(format!("t{at}"))));
        context.add_variable_from_value("texts", CelValue::List(Arc::new(texts.collect())));
        let metered = compile_then(text, |expression| Metered::new(&expression)).unwrap();
        let outcome = metered.evaluate(&context, 100_000);
        (
            outcome
                .result
                .unwrap_or(Err(ExecutionError::NoSuchOverload)),
            outcome.cost,
        )
    }

    #[test]
    fn patterns_are_read_as_go_reads_them() {
        for (text, expected) in [
            (r"'12'.matches('^\\d+$')", true),
            (r"'١٢'.matches('^\\d+$')", false),
            ("'a{'.matches('^a{$')", true),
            ("'some name'.find('n[a-z]+') == 'name'", true),
            ("'none'.find('x') == ''", true),
            ("'a1b22c'.findAll('[0-9]+') == ['1', '22']", true),
            ("'a1b22c'.findAll('[0-9]+', 1) == ['1']", true),
            ("'a1b22c'.findAll('[0-9]+', -1).size() == 2", true),
        ] {
            assert_eq!(evaluated(text).0, Ok(CelValue::Bool(expected)), "{text}");
        }
        let refused = evaluated("'a'.matches('(')").0.unwrap_err().to_string();
        assert!(
            refused.contains("error parsing regexp: missing closing ): `(`"),
            "{refused}"
        );
    }

    #[test]
    fn a_pattern_is_compiled_once_and_paid_for() {
        let (all, cost) = evaluated("texts.all(t, t.matches('^t[0-9]{1,200}$'))");
        assert_eq!(all, Ok(CelValue::Bool(true)));
        assert!((1_000..20_000).contains(&cost), "{cost}");
        let (many, cost) = evaluated("texts.all(t, t.matches(t + '+$'))");
        assert!(many.is_err() && cost == 100_000, "{many:?} {cost}");
    }
}
