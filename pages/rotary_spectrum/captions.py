"""The words for the figures of rotary spectra."""

from pages.shared.cards.explained import PICK, explained

CLOCKS = explained(
    "rotary-spectrum",
    "A rotary head compares query and key in pairs of dimensions, and each pair is a clock. The "
    "hand is the angle between the mean query and the mean key: it turns steadily with their "
    "distance, fast for a short wavelength (top), slowly for a long one (bottom). Its projection "
    "on the horizontal is the pair's part of the score: orange (right) is positive, blue (left) "
    "negative. One clock cannot tell how far a key is; fast and slow ones together can, like the "
    "hands of a watch. Below: the sum over all pairs, the positional logit $S(D)$, in nats. The "
    "pairs that change this logit most are shown.",
    "phase",
    "amplitude",
    "swing",
)

AMPLITUDES = explained(
    "rotary-spectrum",
    "Above: the size of each pair's term (*amplitude*), and its variation over the distances of "
    "the context (*swing*): a slow pair is nearly constant, and a constant has no effect on "
    "attention. Below: the *phase*, the angle of the hand at distance 0; at phase 0 the term is "
    "largest at distance 0. Hover for the distance of the largest term. Dotted lines separate the "
    "bands of wavelengths. Bars are one standard error.",
    "amplitude",
    "swing",
    "phase",
)

USAGE = explained(
    "rotary-spectrum",
    "*Usage* is the norm of queries and keys in a pair, whatever their direction. The share of "
    "amplitude counts only the mean query and key, the share of swing only the part that changes "
    "with distance. Usage without swing serves content: slow pairs hardly turn and can compare "
    "content over long distances.",
    "usage",
    "swing",
    "amplitude",
)

SHARES = explained(
    "rotary-spectrum",
    "Near 1 the queries (or keys) of all tokens have the same direction in a pair, and position "
    "alone decides its part of the score; near 0 they have all directions, and content decides. "
    "Long dashes: all pairs together.",
    "query_share",
    "key_share",
    "mean_share_queries",
    "mean_share_keys",
)

LOGIT = explained(
    "equivariant-kernel",
    "The score of the mean query and the mean key at each distance, and its parts, one for each "
    "band of wavelengths. A rise by 1 nat is 2.7 times the attention.",
    "positional_logit",
    "band_logit",
)

EQUIVARIANT = explained(
    "equivariant-kernel",
    "Solid: attention with the mean query and the mean key everywhere, which depends on distance "
    "alone. Dash-dotted: the positional kernel, with a separate mean key at every position and "
    "real queries. Dashed: the observed attention. Where the solid and the dash-dotted line "
    "agree, the head uses position in the same way everywhere; where the dashed line differs from "
    "them, content decides.",
    "equivariant_kernel",
    "mean_key_kernel",
    "kernel_distance",
    "equivariant_attention_distance",
    "attention_distance",
)

WITHOUT = explained(
    "equivariant-kernel",
    "The kernel with all wavelengths, and without the pairs of one band. Short wavelengths "
    "distinguish neighbouring tokens, long ones near from far.",
    "without_band",
    "band_distance",
    "band_etc",
)

GRID = explained(
    "rotary-spectrum",
    f"One cell per head, layers downwards, coloured by the chosen measure. {PICK}",
    "dominant_wavelength",
    "short_weight",
    "mean_share_queries",
)

CHANGED_LOSS = explained(
    "changed-bands",
    "The rise of the loss if a band's pairs are not rotated (*frozen*: they still compare content) "
    "or set to zero (*removed*) in the heads chosen above. Bars are one standard error. A band "
    "without pairs in this model changes nothing.",
    "loss_change",
)

CHANGED_PATTERN = explained(
    "changed-bands",
    "The selected head's mean attention by offset, in the clean run and with each band changed. "
    "The table has the distance between the patterns, and the attention to the previous token.",
    "profile",
    "pattern_distance",
    "previous_mass_change",
)
