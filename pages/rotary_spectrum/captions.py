"""The words of the page on rotary spectra; formulas are those of the definitions."""

from pages.shared.cards.explained import explained

CLOCKS = explained(
    "rotary-spectrum",
    "A rotary head compares query and key pair by pair, and each pair is a clock. The hand shows "
    "the angle between the mean query and the mean key: it turns steadily with their distance, "
    "fast for a short wavelength (top), slowly for a long one (bottom). Its shadow on the "
    "horizontal is what the pair adds to the score: orange to the right adds, blue to the left "
    "takes away. One clock cannot tell how far a key is; fast and slow ones together can, as the "
    "hands of a watch do. Below stands their sum over all pairs, the positional logit $S(D)$, in "
    "nats. Shown are the pairs that move it most.",
    "phase",
    "amplitude",
    "swing",
)

AMPLITUDES = explained(
    "rotary-spectrum",
    "Above, how large each pair's term is (*amplitude*), and by how much it varies over the "
    "distances of the context (*swing*): a pair that turns slowly is nearly constant, and a "
    "constant does not matter to attention. Below, the *phase*: where the hand stands at distance "
    "0; at 0 the term is largest there, and hovering tells the distance at which it is. Dotted "
    "lines part the bands of wavelengths. Bars are one standard error.",
    "amplitude",
    "swing",
    "phase",
)

USAGE = explained(
    "rotary-spectrum",
    "*Usage* is how long queries and keys are in a pair, whatever their direction; the share of "
    "amplitude counts only what the mean query and key agree on, the share of swing only what of "
    "that changes with distance. Usage without swing is left to content: slow pairs hardly turn, "
    "so that they can carry meaning over long distances.",
    "usage",
    "swing",
    "amplitude",
)

SHARES = explained(
    "rotary-spectrum",
    "Near 1 the queries (or keys) of all tokens point the same way in a pair, so that position "
    "alone decides what it adds; near 0 they point everywhere, and content decides. The long "
    "dashes are all pairs together.",
    "query_share",
    "key_share",
    "mean_share_queries",
    "mean_share_keys",
)

LOGIT = explained(
    "equivariant-kernel",
    "The score that the mean query gives the mean key at each distance, and the parts that add up "
    "to it, one for each band of wavelengths. A rise by 1 nat is 2.7 times the attention.",
    "positional_logit",
    "band_logit",
)

EQUIVARIANT = explained(
    "equivariant-kernel",
    "Solid: attention if every query were the mean query and every key the mean key, which depends "
    "on distance alone. Dash-dotted: the positional kernel, with a mean key of its own at every "
    "position and real queries. Dashed: the attention observed. Where the first two agree, the "
    "head's use of position is the same everywhere; where the last lies apart, content decides.",
    "equivariant_kernel",
    "mean_key_kernel",
    "kernel_distance",
    "equivariant_attention_distance",
    "attention_distance",
)

WITHOUT = explained(
    "equivariant-kernel",
    "The kernel with all wavelengths, and what is left of it without the pairs of one band. Short "
    "wavelengths make single tokens stand out; without the long ones nothing tells near from far.",
    "without_band",
    "band_distance",
    "band_etc",
)

GRID = explained(
    "rotary-spectrum",
    "One cell per head, layers downwards. Choose what the colour means; click a cell, or walk with "
    "the arrow keys and press Enter, and that head is shown everywhere.",
    "dominant_wavelength",
    "short_weight",
    "mean_share_queries",
)

CHANGED_LOSS = explained(
    "changed-bands",
    "How much worse the next token is predicted when a band's pairs are not turned (*frozen*: they "
    "go on comparing content), or set to zero (*removed*), in the heads chosen above. Bars are one "
    "standard error. A band without any pair of this model changes nothing.",
    "loss_change",
)

CHANGED_PATTERN = explained(
    "changed-bands",
    "The selected head's mean attention to the token so many places back, in the clean run and "
    "with each band changed. The table tells the distance between the patterns, and what became of "
    "the attention to the previous token.",
    "profile",
    "pattern_distance",
    "previous_mass_change",
)
