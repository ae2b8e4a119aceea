"""Directed cycles among preferences: the strongly connected component of every answer."""

from __future__ import annotations

from collections.abc import Iterable


def components(edges: Iterable[tuple[bytes, bytes]]) -> dict[bytes, int]:
    """Component number of each node; an edge lies on a cycle exactly when both its ends share a component.

    Tarjan's algorithm (1972), without recursion; linear in the number of edges.
    """
    successors: dict[bytes, list[bytes]] = {}
    for start, end in edges:
        successors.setdefault(start, []).append(end)
        successors.setdefault(end, [])
    index: dict[bytes, int] = {}
    low: dict[bytes, int] = {}
    component: dict[bytes, int] = {}
    stack: list[bytes] = []
    for root in successors:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        path = [(root, iter(successors[root]))]
        while path:
            node, children = path[-1]
            for child in children:
                if child not in index:
                    index[child] = low[child] = len(index)
                    stack.append(child)
                    path.append((child, iter(successors[child])))
                    break
                if child not in component:
                    low[node] = min(low[node], index[child])
            else:
                path.pop()
                if path:
                    parent = path[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    while True:
                        member = stack.pop()
                        component[member] = index[node]
                        if member == node:
                            break
    return component
