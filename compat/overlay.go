package compat

import (
	"strconv"

	"understudy/eventstore/overlay"
	"understudy/internal/fault"
)

// Query parameters and header by which a request chooses transcripts and markers.
const (
	OverlayParam  = "overlay"
	MarkersParam  = "markers"
	OverlayHeader = "X-Understudy-Overlay"
)

// Overlay reads the choice of a request. A nil field means no choice. A parameter overrides the header.
func Overlay(param, markers *string, header string) (c overlay.Choice, err error) {
	choose := func(on, full bool) { c.Overlay, c.Full = &on, full }
	switch header {
	case "":
	case "on", "off", "full":
		choose(header != "off", header == "full")
	default:
		return c, fault.Newf(fault.Unprocessable, "Invalid %s header '%s'. Expected on, off or full", OverlayHeader, cut([]byte(header)))
	}
	if param != nil {
		switch *param {
		case "true", "false", "full":
			choose(*param != "false", *param == "full")
		default:
			return c, fault.Newf(fault.Unprocessable, "Invalid overlay '%s'. Expected true, false or full", cut([]byte(*param)))
		}
	}
	if markers != nil {
		switch m := overlay.Markers(*markers); m {
		case overlay.AttachedMarkers, overlay.SystemMarkers, overlay.BareMarkers, overlay.NoMarkers:
			c.Markers = m
		default:
			return c, fault.Newf(fault.Unprocessable, "Invalid markers '%s'. Expected attached, system, summary_marker or off", cut([]byte(*markers)))
		}
	}
	return c, nil
}

// PartialOverlay returns the response header of a history in which only the first entries have transcripts, because transcripts of all would
// exceed the limit. Later entries show the graph's own messages.
func PartialOverlay(entries int) string { return "partial; entries=" + strconv.Itoa(entries) }
