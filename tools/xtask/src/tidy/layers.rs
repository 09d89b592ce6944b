//! Imports point one way: each crate lists what it may import, and the list is the architecture.

use cargo_metadata::{DependencyKind, Metadata};

use super::Finding;

/// Crate, layer, and what of ours it may import; `*` = every lower layer. Mirrors the table in host/README.md.
const LAYERS: &[(&str, u8, &[&str])] = &[
    ("sf-abi", 0, &[]),
    ("sf-core", 0, &[]),
    // The format of our engine's files: the engine, the host's reader and the packer share it.
    ("sf-base", 0, &[]),
    // Tests only: linking it replaces the allocator.
    ("sf-counting", 0, &[]),
    // The load generator stands beside the product: the command line may carry it, nothing else of the host.
    ("sf-load", 0, &[]),
    ("sf-abi-sdk", 1, &["sf-abi"]),
    ("sf-settings", 1, &["sf-core"]),
    ("sf-artifact", 1, &["sf-base", "sf-core"]),
    ("sf-store", 1, &["sf-core"]),
    ("sf-sched", 1, &["sf-core"]),
    ("sf-api", 1, &["sf-core"]),
    ("sf-kit", 1, &["sf-core", "sf-abi"]),
    ("sf-catalog", 2, &["sf-core", "sf-abi", "sf-artifact"]),
    ("sf-codec", 2, &["sf-core", "sf-artifact"]),
    ("sf-engine", 2, &["sf-core", "sf-abi", "sf-kit"]),
    ("sf-verify", 2, &["sf-core", "sf-abi", "sf-kit"]),
    ("sf-fleet", 2, &["sf-core"]),
    // Stands beside the service: the command line may carry it, nothing else of the host.
    ("sf-convert", 3, &["sf-artifact", "sf-base", "sf-codec"]),
    ("sf-service", 3, &["*"]),
    ("superfluid", 4, &["*"]),
    ("superfluid-workerd", 4, &["*"]),
    // A runtime knows the ABI and nothing of the host: no private back door.
    ("sf-runtime-basert", 2, &["sf-abi", "sf-abi-sdk", "sf-base"]),
    ("sf-runtime-llamacpp", 2, &["sf-abi", "sf-abi-sdk"]),
    ("sf-runtime-mlx", 2, &["sf-abi", "sf-abi-sdk"]),
    // Black-box tests and tools stand outside; nothing of the product may import them.
    ("sf-tests", 8, &["*"]),
    ("bench", 9, &["*"]),
    ("xtask", 9, &["*"]),
];

/// A dependency between two of our crates.
struct Edge<'a> {
    from: &'a str,
    to: &'a str,
    dev: bool,
}

/// Checks every dependency between members of the workspace.
pub(super) fn check(metadata: &Metadata) -> Vec<Finding> {
    let members = metadata.workspace_packages();
    let names: Vec<&str> = members.iter().map(|package| package.name.as_str()).collect();
    let mut findings: Vec<Finding> =
        names.iter().filter(|name| layer(name).is_none()).map(|name| unknown(name)).collect();
    for package in &members {
        for dependency in package.dependencies.iter().filter(|one| names.contains(&one.name.as_str())) {
            let dev = dependency.kind == DependencyKind::Development;
            findings.extend(check_edge(&Edge { from: package.name.as_str(), to: &dependency.name, dev }));
        }
    }
    findings
}

fn layer(name: &str) -> Option<(u8, &'static [&'static str])> {
    LAYERS.iter().find(|(known, ..)| *known == name).map(|(_, layer, may)| (*layer, *may))
}

fn unknown(name: &str) -> Finding {
    Finding::Broken(format!("{name} has no layer: add it to tools/xtask/src/tidy/layers.rs"))
}

/// Tests may also look sideways, at crates of their own layer.
fn check_edge(edge: &Edge<'_>) -> Option<Finding> {
    let (Some((from, may)), Some((to, _))) = (layer(edge.from), layer(edge.to)) else { return None };
    let lower = if edge.dev { to <= from } else { to < from };
    let listed = edge.dev || may.contains(&"*") || may.contains(&edge.to);
    let words = match (lower, listed) {
        (true, true) => return None,
        (false, _) => format!("{} (layer {from}) may not import {} (layer {to})", edge.from, edge.to),
        (true, false) => format!("{} may import {}, not {}", edge.from, may.join(", "), edge.to),
    };
    Some(Finding::Broken(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_point_down_and_only_where_the_table_says() {
        let check = |from: &str, to: &str, dev: bool, fine: bool| {
            assert_eq!(check_edge(&Edge { from, to, dev }).is_none(), fine, "{from} -> {to}, dev {dev}");
        };
        check("sf-engine", "sf-kit", false, true);
        check("sf-service", "sf-codec", false, true);
        check("superfluid", "sf-settings", false, true);
        check("sf-kit", "sf-engine", false, false);
        check("sf-core", "sf-abi", false, false);
        check("sf-codec", "sf-abi", false, false);
        check("sf-runtime-llamacpp", "sf-core", false, false);
        check("sf-api", "sf-service", false, false);
        check("sf-catalog", "sf-engine", false, false);
        check("sf-catalog", "sf-engine", true, true);
        check("sf-kit", "sf-service", true, false);
        check("sf-service", "sf-tests", true, false);
    }

    #[test]
    fn the_table_itself_points_down() {
        for (from, _, may) in LAYERS {
            for to in may.iter().filter(|to| **to != "*") {
                assert_eq!(check_edge(&Edge { from, to, dev: false }), None, "{from} -> {to}");
            }
        }
    }
}
