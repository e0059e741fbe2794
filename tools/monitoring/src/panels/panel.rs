//! What a panel has.

/// One row of the dashboard, with its panels.
#[derive(Debug)]
pub struct Row {
    /// Its heading.
    pub title: &'static str,
    /// Its panels, from the left.
    pub panels: &'static [Panel],
}

/// One panel.
#[derive(Debug)]
pub struct Panel {
    /// Its heading.
    pub title: &'static str,
    /// How its values are shown.
    pub form: Form,
    /// The unit, by Grafana's name.
    pub unit: &'static str,
    /// What the values mean, in the corner of the panel.
    pub about: &'static str,
    /// PromQL and the legend of its series.
    pub queries: &'static [(&'static str, &'static str)],
}

/// How a panel shows its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Lines over time.
    Graph,
    /// The last value.
    Number,
    /// The last value, green at zero and red above.
    Faults,
    /// The last value of a share: green, yellow from 1 %, red from 10 %.
    Share,
}

/// A graph of a third of the width.
pub(super) const fn graph(
    title: &'static str,
    unit: &'static str,
    about: &'static str,
    queries: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel {
        title,
        form: Form::Graph,
        unit,
        about,
        queries,
    }
}

pub(super) const fn number(
    title: &'static str,
    form: Form,
    unit: &'static str,
    about: &'static str,
    query: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel {
        title,
        form,
        unit,
        about,
        queries: query,
    }
}
