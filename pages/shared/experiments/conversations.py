"""What pages show of conversations, where the model has a chat template."""

from pages.shared.cards.show import show
from pages.shared.jobs import results
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.conversations.spec import ConversationParams, Conversations
from poskernel_core.common.errors import PosKernelError
from poskernel_core.common.result import Result
from poskernel_core.models.catalog import Located
from poskernel_core.models.chat import chat_template


def reads_turns(located: Located) -> bool:
    """Tell whether a model has a chat template."""
    try:
        return chat_template(located) is not None
    except PosKernelError:  # damaged files, which are told of where they are needed
        return False


def has_conversations(selection: Selection) -> bool:
    """Tell whether model and corpus have conversations, or an answer about them is stored."""
    try:
        asked = results.plan(Conversations, selection.run, ConversationParams())
    except PosKernelError:
        return False
    return reads_turns(selection.located) or results.engine().ready(asked)


def draw_conversation(found: Result, selection: Selection) -> None:
    """Draw the selected head's attention by class of token."""
    show("conversation", selection.of(found))
