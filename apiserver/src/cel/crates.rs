//! The functions of the crates that others here have replaced, for the types that only the crates have.

use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr};
use kube_cel::cel::{Context, ExecutionError, Value as CelValue};

thread_local! {
    static CRATES: Context<'static> = Context::default().with_all();
}

type Answer = Result<CelValue, ExecutionError>;

/// `function(value)`.
pub(super) fn call(function: &str, value: CelValue) -> Answer {
    evaluate(function, None, value)
}

/// `target.function(value)`.
pub(super) fn call_method(function: &str, target: CelValue, value: CelValue) -> Answer {
    evaluate(function, Some(target), value)
}

fn evaluate(function: &str, target: Option<CelValue>, value: CelValue) -> Answer {
    let name = |name: &str| IdedExpr {
        id: 0,
        expr: Expr::Ident(name.to_owned()),
    };
    let call = IdedExpr {
        id: 0,
        expr: Expr::Call(CallExpr {
            func_name: function.to_owned(),
            target: target.is_some().then(|| Box::new(name("target"))),
            args: vec![name("value")],
        }),
    };
    CRATES.with(|crates| {
        let mut scope = crates.new_inner_scope();
        if let Some(target) = target {
            scope.add_variable_from_value("target", target);
        }
        scope.add_variable_from_value("value", value);
        scope.resolve(&call)
    })
}
