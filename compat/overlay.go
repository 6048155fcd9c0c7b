package compat

import (
	"understudy/internal/fault"
	"understudy/thread/overlay"
)

// Query parameters and header by which a request chooses whether it sees transcripts, and with which markers.
const (
	OverlayParam  = "overlay"
	MarkersParam  = "markers"
	OverlayHeader = "X-Understudy-Overlay"
)

// Overlay reads what a request chooses. nil: it does not say. A parameter counts more than the header.
func Overlay(param, markers *string, header string) (c overlay.Choice, err error) {
	on := func(v bool) { c.Overlay = &v }
	switch header {
	case "":
	case "on", "off":
		on(header == "on")
	default:
		return c, fault.Newf(fault.Unprocessable, "Invalid %s header '%s'. Expected on or off", OverlayHeader, cut([]byte(header)))
	}
	if param != nil {
		switch *param {
		case "true", "false":
			on(*param == "true")
		default:
			return c, fault.Newf(fault.Unprocessable, "Invalid overlay '%s'. Expected true or false", cut([]byte(*param)))
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
