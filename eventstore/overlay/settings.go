package overlay

import "context"

// Markers is the form of a marker.
type Markers string

const (
	// AttachedMarkers are not separate entries: the next message carries them. It is the default, because clients that do not know
	// markers show every message that is not a person's as an answer.
	AttachedMarkers Markers = "attached"
	// SystemMarkers are system messages, which every client can parse.
	SystemMarkers Markers = "system"
	// BareMarkers have the type summary_marker, for clients that know it.
	BareMarkers Markers = "summary_marker"
	// NoMarkers omits markers.
	NoMarkers Markers = "off"
)

// Settings control where and how the transcript of a graph's threads is shown.
type Settings struct {
	State, History, Threads, Wait, Stream bool
	Updates                               bool // of such streams: also the updates of steps that condense
	Markers                               Markers
	Key                                   string // the channel of the messages
	Partial                               bool   // keep answers that were streamed but not saved
	// FullThreads: lists of threads show whole transcripts, not only the first message and the last ones.
	FullThreads bool
	// MaxBytes limits the values of one history: above it, condensed entries show the graph's messages. 0: no limit.
	MaxBytes int64
}

// DefaultMaxBytes is the default of Settings.MaxBytes.
const DefaultMaxBytes = 16 << 20

// Defaults returns settings that show transcripts everywhere.
func Defaults() Settings {
	return Settings{State: true, History: true, Threads: true, Wait: true, Stream: true, Updates: true, Markers: AttachedMarkers, Key: "messages", Partial: true, MaxBytes: DefaultMaxBytes}
}

// Config is Settings for all graphs, and overrides for single graphs.
type Config struct {
	Settings
	Graphs map[string]Settings
}

// Place is a kind of answer that contains messages.
type Place int

const (
	State   Place = iota // the state of a thread, latest or at a checkpoint
	History              // each entry of a history
	Threads              // the values of a thread
	Lists                // the values of each thread of a list
	Wait                 // the result of a run
	Stream               // root `values` events, and root `updates` of steps that condense
)

func (s *Settings) on(p Place) bool {
	return [...]bool{s.State, s.History, s.Threads, s.Threads, s.Wait, s.Stream}[p]
}

// Choice is how one request deviates from the settings. The zero value does not.
type Choice struct {
	Overlay *bool
	Full    bool    // whole transcripts: lists of threads are not shortened, and histories not limited
	Markers Markers // "": as configured
}

type choiceKey struct{}

// With adds a choice to a context. It travels there, like the actor, and not as an argument: every read honours it, and callers without
// a request (webhooks, crons, Go programs) have none. An object that outlives the request, such as a follower of a stream, takes its
// Look when it is created.
func With(ctx context.Context, c Choice) context.Context {
	if c == (Choice{}) {
		return ctx
	}
	return context.WithValue(ctx, choiceKey{}, c)
}

// Look is how one answer shows messages.
type Look struct {
	On      bool
	Updates bool // of a stream: also the updates of steps that condense
	Markers Markers
	Key     string
	// Live reports that the answer is the stream of a run, which contains parts of answers that it did not save.
	Live bool
	// Recent shows only the first message and the last ones of a transcript with condensed messages.
	Recent bool
	// MaxBytes limits the values of the answer, as Settings.MaxBytes.
	MaxBytes int64
}

// Look returns how answers of a kind show the threads of a graph, by settings and by the request's choice. For a nil Overlay: unchanged.
func (o *Overlay) Look(ctx context.Context, graph string, p Place) Look {
	if o == nil {
		return Look{}
	}
	s := o.settings(graph)
	l := Look{On: s.on(p), Markers: s.Markers, Key: s.Key, Live: p == Stream}
	c, _ := ctx.Value(choiceKey{}).(Choice)
	if c.Overlay != nil {
		l.On = *c.Overlay
	}
	l.Updates = l.On && p == Stream && (s.Updates || c.Overlay != nil)
	if c.Markers != "" {
		l.Markers = c.Markers
	}
	if !c.Full {
		l.Recent = p == Lists && !s.FullThreads
		if p == History {
			l.MaxBytes = s.MaxBytes
		}
	}
	return l
}

// Key returns the channel of a graph's messages. For a nil Overlay: `messages`.
func (o *Overlay) Key(graph string) string {
	if o == nil {
		return Defaults().Key
	}
	return o.settings(graph).Key
}

// KeepsPartial reports whether answers that a run of the graph streamed but did not save are kept. For a nil Overlay: false.
func (o *Overlay) KeepsPartial(graph string) bool { return o != nil && o.settings(graph).Partial }

func (o *Overlay) settings(graph string) *Settings {
	if s, ok := o.config.Graphs[graph]; ok {
		return &s
	}
	return &o.config.Settings
}
