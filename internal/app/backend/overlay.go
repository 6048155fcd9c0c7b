package backend

import (
	"understudy/eventstore/overlay"
	"understudy/internal/config"
)

// OverlayConfig is the history section as package overlay has it.
func OverlayConfig(h config.History) overlay.Config {
	settings := func(o config.Overlay) overlay.Settings {
		return overlay.Settings{
			State: o.State, History: o.History, Threads: o.Threads, Wait: o.Wait, Stream: o.Stream, Updates: o.Updates, Markers: overlay.Markers(o.Markers), Key: o.Key,
			Partial: o.Partial, FullThreads: o.FullThreads, MaxBytes: int64(o.MaxBytes),
		}
	}
	c := overlay.Config{Settings: settings(h.Overlay), Graphs: make(map[string]overlay.Settings, len(h.Graphs))}
	for name, o := range h.Graphs {
		c.Graphs[name] = settings(o)
	}
	return c
}
