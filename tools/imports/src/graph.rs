//! Circles, cuts and floors of a directed graph with nodes `0..n`.

use std::collections::{BTreeMap, BTreeSet};

/// Edges, each with its weight.
pub(crate) type Edges = BTreeMap<(usize, usize), usize>;

/// The strongly connected components with more than one node, largest first; each in ascending order.
pub(crate) fn circles(n: usize, edges: &Edges) -> Vec<Vec<usize>> {
    let mut found = components(n, edges);
    found.retain(|component| component.len() > 1);
    found.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    found
}

/// All strongly connected components, each before those that it is reached from (Tarjan's algorithm).
fn components(n: usize, edges: &Edges) -> Vec<Vec<usize>> {
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); n];
    for &(from, to) in edges.keys() {
        next[from].push(to);
    }
    let mut index = vec![usize::MAX; n];
    let mut low = vec![0; n];
    let mut on_stack = vec![false; n];
    let mut stack = Vec::new();
    let mut count = 0;
    let mut found = Vec::new();
    for root in 0..n {
        if index[root] != usize::MAX {
            continue;
        }
        // A node and how many of its edges are done.
        let mut calls = vec![(root, 0)];
        while let Some((node, done)) = calls.pop() {
            if done == 0 {
                index[node] = count;
                low[node] = count;
                count += 1;
                stack.push(node);
                on_stack[node] = true;
            } else {
                low[node] = low[node].min(low[next[node][done - 1]]);
            }
            let mut edge = done;
            let mut descended = false;
            while let Some(&to) = next[node].get(edge) {
                edge += 1;
                if index[to] == usize::MAX {
                    calls.push((node, edge));
                    calls.push((to, 0));
                    descended = true;
                    break;
                }
                if on_stack[to] {
                    low[node] = low[node].min(index[to]);
                }
            }
            if !descended && low[node] == index[node] {
                let at = stack.iter().rposition(|&other| other == node).unwrap_or(0);
                let mut component = stack.split_off(at);
                for &member in &component {
                    on_stack[member] = false;
                }
                component.sort_unstable();
                found.push(component);
            }
        }
    }
    found
}

/// A small set of edges inside `circle` without which no circle of it has more than `goal` nodes.
///
/// Orders the nodes so that edges of little weight run backward (Eades, Lin and Smyth), moves single nodes while that
/// helps, and then keeps each backward edge that does not have to be cut for the goal.
pub(crate) fn cuts(circle: &[usize], edges: &Edges, goal: usize) -> Vec<(usize, usize)> {
    let members: BTreeMap<usize, usize> = circle
        .iter()
        .enumerate()
        .map(|(at, &node)| (node, at))
        .collect();
    let inner: Edges = edges
        .iter()
        .filter_map(|(&(from, to), &weight)| {
            Some(((*members.get(&from)?, *members.get(&to)?), weight))
        })
        .collect();
    let n = circle.len();
    let order = settled(ordered(n, &inner), &inner);
    let mut position = vec![0; n];
    for (at, &node) in order.iter().enumerate() {
        position[node] = at;
    }
    let backward = |&(&(from, to), _): &(&(usize, usize), &usize)| position[from] > position[to];
    let mut cut: Vec<((usize, usize), usize)> = inner
        .iter()
        .filter(backward)
        .map(|(&edge, &weight)| (edge, weight))
        .collect();
    cut.sort_by_key(|&(edge, weight)| (std::cmp::Reverse(weight), edge));
    let mut left = inner.clone();
    for (edge, _) in &cut {
        left.remove(edge);
    }
    cut.retain(|&(edge, weight)| {
        left.insert(edge, weight);
        let opened = circles(n, &left).first().map_or(1, Vec::len) <= goal;
        if !opened {
            left.remove(&edge);
        }
        !opened
    });
    let mut cut: Vec<_> = cut
        .into_iter()
        .map(|((from, to), _)| (circle[from], circle[to]))
        .collect();
    cut.sort_unstable();
    cut
}

/// An order of the nodes with little weight on edges that run backward.
fn ordered(n: usize, edges: &Edges) -> Vec<usize> {
    let mut left: BTreeSet<usize> = (0..n).collect();
    let mut head = Vec::new();
    let mut tail = Vec::new();
    while !left.is_empty() {
        let weight = |node: usize, out: bool| -> usize {
            edges
                .iter()
                .filter(|((from, to), _)| left.contains(from) && left.contains(to))
                .filter(|((from, to), _)| node == if out { *from } else { *to })
                .map(|(_, weight)| weight)
                .sum()
        };
        if let Some(&sink) = left.iter().find(|&&node| weight(node, true) == 0) {
            left.remove(&sink);
            tail.push(sink);
            continue;
        }
        let surplus = |node: usize| weight(node, true) as isize - weight(node, false) as isize;
        let Some(best) = left.iter().copied().max_by_key(|&node| surplus(node)) else {
            break;
        };
        left.remove(&best);
        head.push(best);
    }
    tail.reverse();
    head.append(&mut tail);
    head
}

/// Moves single nodes of an order as long as the weight of its backward edges decreases.
fn settled(mut order: Vec<usize>, edges: &Edges) -> Vec<usize> {
    loop {
        let before = backward_weight(&order, edges);
        for node in order.clone() {
            let mut best = (backward_weight(&order, edges), order.clone());
            let rest: Vec<usize> = order
                .iter()
                .copied()
                .filter(|&other| other != node)
                .collect();
            for at in 0..=rest.len() {
                let mut moved = rest.clone();
                moved.insert(at, node);
                let weight = backward_weight(&moved, edges);
                if weight < best.0 {
                    best = (weight, moved);
                }
            }
            order = best.1;
        }
        if backward_weight(&order, edges) >= before {
            return order;
        }
    }
}

fn backward_weight(order: &[usize], edges: &Edges) -> usize {
    let mut position = vec![0; order.len()];
    for (at, &node) in order.iter().enumerate() {
        position[node] = at;
    }
    edges
        .iter()
        .filter(|((from, to), _)| position[*from] > position[*to])
        .map(|(_, weight)| weight)
        .sum()
}

/// Components by floor: the ground floor imports nothing, each other floor imports a component of the floor below it.
pub(crate) fn floors(n: usize, edges: &Edges) -> Vec<Vec<Vec<usize>>> {
    let components = components(n, edges);
    let mut component_of = vec![0; n];
    for (at, component) in components.iter().enumerate() {
        for &node in component {
            component_of[node] = at;
        }
    }
    let mut floors: Vec<Vec<Vec<usize>>> = Vec::new();
    let mut floor_of = Vec::with_capacity(components.len());
    for (at, component) in components.into_iter().enumerate() {
        // A component comes after those that it imports.
        let floor = edges
            .keys()
            .filter(|(from, to)| component_of[*from] == at && component_of[*to] != at)
            .map(|(_, to)| floor_of[component_of[*to]] + 1)
            .max()
            .unwrap_or(0);
        floor_of.push(floor);
        if floors.len() <= floor {
            floors.resize(floor + 1, Vec::new());
        }
        floors[floor].push(component);
    }
    floors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(usize, usize)]) -> Edges {
        edges.iter().map(|&edge| (edge, 1)).collect()
    }

    #[test]
    fn circles_are_the_strongly_connected_components_largest_first() {
        type Case = (
            &'static str,
            usize,
            &'static [(usize, usize)],
            &'static [&'static [usize]],
        );
        let cases: &[Case] = &[
            ("no edges", 3, &[], &[]),
            ("a chain", 3, &[(0, 1), (1, 2)], &[]),
            ("a diamond", 4, &[(0, 1), (0, 2), (1, 3), (2, 3)], &[]),
            ("a pair", 3, &[(0, 1), (1, 0), (1, 2)], &[&[0, 1]]),
            (
                "a ring",
                4,
                &[(0, 1), (1, 2), (2, 3), (3, 0)],
                &[&[0, 1, 2, 3]],
            ),
            (
                "two circles joined by one edge",
                5,
                &[(0, 1), (1, 0), (1, 2), (2, 3), (3, 4), (4, 2)],
                &[&[2, 3, 4], &[0, 1]],
            ),
            (
                "two circles that share a node",
                5,
                &[(0, 1), (1, 0), (1, 2), (2, 1), (3, 0), (0, 4)],
                &[&[0, 1, 2]],
            ),
            (
                "a circle reached late, over an edge back into its middle",
                4,
                &[(3, 1), (0, 1), (1, 2), (2, 3), (2, 0)],
                &[&[0, 1, 2, 3]],
            ),
        ];
        for (name, n, edges, expected) in cases {
            assert_eq!(circles(*n, &graph(edges)), *expected, "{name}");
        }
    }

    #[test]
    fn cuts_take_the_lightest_edges_that_open_the_circle() {
        type Case = (
            &'static str,
            &'static [(usize, usize, usize)],
            usize,
            &'static [(usize, usize)],
        );
        let cases: &[Case] = &[
            (
                "the lightest edge of a ring",
                &[(0, 1, 3), (1, 2, 1), (2, 0, 2)],
                1,
                &[(1, 2)],
            ),
            (
                "nothing where the goal allows the ring",
                &[(0, 1, 1), (1, 2, 1), (2, 0, 1)],
                3,
                &[],
            ),
            (
                "one edge that two rings share, though it is heavier than each other one",
                &[(0, 1, 3), (1, 2, 2), (2, 0, 2), (1, 3, 2), (3, 0, 2)],
                1,
                &[(0, 1)],
            ),
            (
                "what ties two pairs, but not the pairs",
                &[
                    (0, 1, 1),
                    (1, 0, 1),
                    (2, 3, 1),
                    (3, 2, 1),
                    (1, 2, 5),
                    (2, 1, 1),
                ],
                2,
                &[(2, 1)],
            ),
        ];
        for (name, edges, goal, expected) in cases {
            let edges: Edges = edges
                .iter()
                .map(|&(a, b, weight)| ((a, b), weight))
                .collect();
            let circle = circles(4, &edges).remove(0);
            assert_eq!(cuts(&circle, &edges, *goal), *expected, "{name}");
        }
    }

    #[test]
    fn a_circle_is_on_one_floor_and_each_node_above_what_it_imports() {
        let edges = graph(&[(0, 1), (1, 2), (2, 1), (2, 3), (0, 3), (4, 3)]);
        let expected = vec![vec![vec![3]], vec![vec![1, 2], vec![4]], vec![vec![0]]];
        assert_eq!(floors(5, &edges), expected);
    }
}
