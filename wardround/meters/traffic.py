"""Traffic: the bytes that went to the sites and came back, in total, per site and round, and per point gained.

Needs nothing but the round records; in a simulation the bytes are those of the arrays that would have been sent. Over
real sites they are all bytes that were said, headers and models sent to be judged included; those of the arrays of
training are told beside them, and are as many as in a simulation. Costs nothing.
"""

from wardround.core.contracts import Meter, Report, RoundRecord
from wardround.core.text import format_bytes
from wardround.meters.energy import accuracy_of, gained_points, widest


def traffic() -> Meter:
    """Bytes sent to the sites and back, in total and per site and round."""

    def observe(state: Report, record: RoundRecord) -> Report:
        return {
            "rounds": state["rounds"] + 1,
            "answers": state["answers"] + record.count,
            "bytes_down": state["bytes_down"] + record.bytes_down,
            "bytes_up": state["bytes_up"] + record.bytes_up,
            "arrays_down": state["arrays_down"] + record.measures.get("arrays", {}).get("bytes_down", 0),
            "arrays_up": state["arrays_up"] + record.measures.get("arrays", {}).get("bytes_up", 0),
            "accuracies": widest(state["accuracies"], accuracy_of(record)),
        }

    def report(state: Report) -> Report:
        answers = state["answers"]
        down = state["bytes_down"] / answers if answers else None
        up = state["bytes_up"] / answers if answers else None
        words = "No site took part; nothing was sent."
        if down is not None and up is not None:
            words = (
                f"{format_bytes(state['bytes_down'])} to the sites and {format_bytes(state['bytes_up'])} back in "
                f"{state['rounds']} round{'' if state['rounds'] == 1 else 's'}; per site and round: "
                f"{format_bytes(down)} down, {format_bytes(up)} up."
            )
        points, inner = gained_points(*state["accuracies"]), ("arrays_down", "arrays_up")
        if any(state[name] for name in inner):
            words += (
                f" The arrays of training were {format_bytes(state['arrays_down'])} and "
                f"{format_bytes(state['arrays_up'])} of it; the rest are words around them, and whole models that "
                "were sent to be judged and used."
            )
        hidden = {"accuracies", *(name for name in inner if not state[name])}
        told = {name: value for name, value in state.items() if name not in hidden}
        return {
            **told,
            "bytes_down_a_site_a_round": down,
            "bytes_up_a_site_a_round": up,
            "bytes_a_point": (state["bytes_down"] + state["bytes_up"]) / points if points else None,
            "words": words,
        }

    start = {"rounds": 0, "answers": 0, "bytes_down": 0, "bytes_up": 0, "arrays_down": 0, "arrays_up": 0}
    return Meter(lambda: {**start, "accuracies": [None, None]}, observe, report)
