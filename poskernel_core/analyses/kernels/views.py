"""What is drawn, read and said of kernels, diagonals, and their distances."""

from functools import partial

from poskernel_core.analyses.kernels import claims, figures
from poskernel_core.analyses.views import View, Views

PROFILE = View(
    "profile [offset]",
    figures.diagonals,
    "mean attention by offset",
    says=claims.profile_said,
    reading="The mean attention to the token k places back, over all windows and positions; the "
    "band is one standard error. A clean previous-token head has nearly all of it at k = 1.",
)

VIEWS: Views = {
    "etc": (
        View("etc half_mass_distance visible_keys kind [layer head]", figures.etc_map,
             "effective token count"),
        View("etc local_mass visible_keys [...]", says=claims.etc_said),
        View("attention_distance [...]", says=claims.distance_said),
        *(View(f"{name} [...]", says=partial(claims.range_said, name)) for name in claims.RANGES),
    ),
    "kernel": (
        View(
            "kernel kernel_low kernel_high [key]",
            figures.head_curve,
            "positional kernel",
            reading="The share of attention that the head gives to the token $n - i$ places back, "
            "by position alone. Solid: the mean over queries; the band holds 10 to 90 % of them. "
            "Dashed: the observed attention, content included. Where the two agree (a small "
            "*distance to observed attention*), the mean attention follows from position; on a "
            "single text content may lead the head elsewhere. "
            "Up to offset 16 each token is a point on a stem, beyond it a line joins them (from 34 "
            "on, means of several offsets). Grey: the other heads of the layer. Below: the "
            "observed attention divided by the kernel. The bar at the top: how much of all its "
            "attention, on average over positions, the head gives to the first keys, which the "
            "curve leaves out.",
            explains="observed query_variation attention_distance",
        ),
        View("attention_distance []", says=claims.kernel_said),
        View(
            "kernel [head key]",
            figures.of_layer,
            "Kernels of layer {layer}",
            reading="The kernels of all heads of the selected layer at the same query position, on "
            "the same axes. Heads with similar kernels are candidates for superposition with each "
            "other.",
        ),
        View("local_mass [...]", says=claims.local_said),
    ),
    "kernel-map": (
        View("kernel observed [query key]", says=claims.map_said),
        View(
            "kernel [query key]",
            figures.map_panel,
            reading="Each row is a query position, each column a key position; brightness is the "
            "share of attention (log scale, at least a factor of ten). A local head shows a thin "
            "diagonal, a uniform head a filled triangle. If a diagonal band keeps its shape "
            "downwards, the head is translation equivariant. Left: the kernel (position alone). "
            "Middle: the observed attention, in the same colours. Right: their difference, orange "
            "where the kernel is larger, blue where content adds attention; the scale of the "
            "difference reaches at least a tenth of the largest share.",
            explains="observed",
        ),
    ),
    "kernel-distances": (
        View("distance [layer head other], group [layer head]", figures.distances),
        View(
            "distance [head other], group [head]",
            figures.distances,
            reading="One cell per pair of heads. Dark: the two kernels are equal. Heads of one "
            "group (outlined) may hold features in superposition. Bright: the two heads attend to "
            "different tokens, so they cannot hold features in superposition.",
        ),
        View("distance [layer head other]", says=claims.distances_said),
        View("distance [head other]", says=claims.distances_said),
    ),
    "near-kernels": (
        View("place [layer head component], stress []", figures.plane),
        View("stress []", says=claims.stress_said),
    ),
    "profile": (PROFILE, View("profile [...]", says=claims.profile_said)),
}  # fmt: skip

CLAIMS = {"etc": (claims.kernel_kind, claims.fidelity)}
