package overlay

import "context"

// Markers is the form of a marker.
type Markers string

const (
	// AttachedMarkers are no entries of their own: the next message carries them. It is the default, for clients that do not know markers
	// show every message that is not a person's as an answer.
	AttachedMarkers Markers = "attached"
	// SystemMarkers are system messages, which every client can parse.
	SystemMarkers Markers = "system"
	// BareMarkers have the type summary_marker, for clients that know it.
	BareMarkers Markers = "summary_marker"
	// NoMarkers leaves them out.
	NoMarkers Markers = "off"
)

// Settings say where the transcript of a graph's threads is shown, and how.
type Settings struct {
	State, History, Threads, Wait, Stream bool
	Updates                               bool // of streams that are shown so: what a step that condenses wrote
	Markers                               Markers
	Key                                   string // of the values that holds the messages
	Partial                               bool   // answers that were streamed and not saved are kept
	// FullThreads: lists of threads show whole transcripts, not only the first message and the last ones.
	FullThreads bool
	// MaxBytes bounds the values of one history: once they are larger, condensed entries show what the graph has. 0: no bound.
	MaxBytes int64
}

// DefaultMaxBytes is Settings.MaxBytes unless it is set.
const DefaultMaxBytes = 16 << 20

// Defaults show it everywhere.
func Defaults() Settings {
	return Settings{State: true, History: true, Threads: true, Wait: true, Stream: true, Updates: true, Markers: AttachedMarkers, Key: "messages", Partial: true, MaxBytes: DefaultMaxBytes}
}

// Config is Settings for all graphs, and those of graphs that have their own.
type Config struct {
	Settings
	Graphs map[string]Settings
}

// Place is a kind of answer that has messages in it.
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

// Choice is what one request wants otherwise than the settings say. The zero value wants nothing.
type Choice struct {
	Overlay *bool
	Full    bool    // whole transcripts: no list of threads is shortened, and no history bounded
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
	Updates bool // of a stream: also what a step that condenses wrote
	Markers Markers
	Key     string
	// Live: the answer is the stream of a run, which shows what it said of answers that it did not save.
	Live bool
	// Recent: of a transcript with condensed messages only the first message and the last ones are shown.
	Recent bool
	// MaxBytes bounds the values of the answer, as Settings.MaxBytes.
	MaxBytes int64
}

// Look returns how answers of a kind show the threads of a graph, by settings and by what the request chose. Of a nil Overlay: as they are.
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

// Key is the channel that holds the messages of a graph. Of a nil Overlay: `messages`.
func (o *Overlay) Key(graph string) string {
	if o == nil {
		return Defaults().Key
	}
	return o.settings(graph).Key
}

// KeepsPartial reports whether answers that a run of a graph streamed and did not save are kept. Of a nil Overlay: they are not.
func (o *Overlay) KeepsPartial(graph string) bool { return o != nil && o.settings(graph).Partial }

func (o *Overlay) settings(graph string) *Settings {
	if s, ok := o.config.Graphs[graph]; ok {
		return &s
	}
	return &o.config.Settings
}
