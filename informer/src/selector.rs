//! Whether an object satisfies a selector.

use std::sync::Arc;

use kube_core::{Expression, Selector};

use crate::entry::Stored;

/// Keeps the objects whose labels satisfy `labels`. The labels of each are read once.
pub(crate) fn retain_labelled<S: Stored>(objects: &mut Vec<Arc<S>>, labels: &Selector) {
    let wanted: Vec<Expression> = labels.clone().into_iter().collect();
    if wanted.is_empty() {
        return;
    }
    let absent: Vec<bool> = wanted.iter().map(|wanted| accepts(wanted, None)).collect();
    let mut satisfied = absent.clone();
    objects.retain(|object| {
        satisfied.copy_from_slice(&absent);
        object.each_label(&mut |name, value| {
            for (satisfied, wanted) in satisfied.iter_mut().zip(&wanted) {
                if label_of(wanted) == name {
                    *satisfied = accepts(wanted, Some(value));
                }
            }
        });
        !satisfied.contains(&false)
    });
}

fn label_of(wanted: &Expression) -> &str {
    match wanted {
        Expression::In(name, _)
        | Expression::NotIn(name, _)
        | Expression::Equal(name, _)
        | Expression::NotEqual(name, _)
        | Expression::Exists(name)
        | Expression::DoesNotExist(name) => name,
    }
}

/// Whether a label with this value satisfies the expression. Of an absent one `notin` and `!=` are true.
fn accepts(wanted: &Expression, label: Option<&str>) -> bool {
    match wanted {
        Expression::In(_, values) => label.is_some_and(|value| values.contains(value)),
        Expression::NotIn(_, values) => label.is_none_or(|value| !values.contains(value)),
        Expression::Equal(_, value) => label == Some(value),
        Expression::NotEqual(_, value) => label != Some(value),
        Expression::Exists(_) => label.is_some(),
        Expression::DoesNotExist(_) => label.is_none(),
    }
}
