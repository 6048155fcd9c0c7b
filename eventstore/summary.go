package eventstore

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"understudy/eventstore/judge"
)

// Summary is the content of a TypeSummarize event.
type Summary struct {
	ID            string   `json:"id"` // of the marker
	ReplacedCount int      `json:"replaced_count"`
	Summary       string   `json:"summary"`
	IDs           []string `json:"ids"` // of the messages that were condensed
	// Said is the text of the summary message when Summary is another, as a graph chose it; nil else.
	Said *string `json:"said,omitempty"`
	// Digest identifies the content of the summary message, in hex, when that has no id.
	Digest string `json:"digest,omitempty"`
}

// Words returns the text of the message of the summary.
func (s *Summary) Words() string {
	if s.Said != nil {
		return *s.Said
	}
	return s.Summary
}

// SummaryOf returns the content of the event of a condensing step. mid and message are those of the summary, "" and nil when it is no
// message; custom is the text that the graph chose, if it did, and channel what a channel says, which counts when there is no message.
func SummaryOf[T judge.Message](s *judge.Step[T], v *judge.Verdict[T], mid string, message []byte, custom, channel string) Summary {
	c := Summary{ReplacedCount: len(v.Condensed), Summary: channel, IDs: make([]string, len(v.Condensed))}
	for i, m := range v.Condensed {
		c.IDs[i] = m.MessageID()
	}
	if message != nil {
		c.Summary = Text(message)
	}
	if custom != "" && custom != c.Summary {
		if said := c.Summary; message != nil {
			c.Said = &said
		}
		c.Summary = custom
	}
	if mid != "" && s.Marked(mid) {
		mid = "" // a summary that keeps its id has a marker of this name already
	}
	c.ID = markerID(mid, c.IDs[len(c.IDs)-1])
	return c
}

// HiddenSummary is the content of the event of a summary that stands for nothing.
func HiddenSummary(mid string, message []byte) Summary {
	return Summary{ID: markerID(mid, ""), Summary: Text(message), IDs: []string{}}
}

// Revised returns the content of the event of a summary that has another text and stands for the same messages.
func (s Summary) Revised(message []byte) Summary {
	s.Summary, s.Said = Text(message), nil
	return s
}

// SetDigest notes the content of a summary message that has no id. It is how the next list finds it.
func (s *Summary) SetDigest(message []byte) {
	d := ContentDigest(message)
	s.Digest = hex.EncodeToString(d[:])
}

// ContentDigest returns what SetDigest noted.
func (s *Summary) ContentDigest() (d judge.Digest) {
	if b, err := hex.DecodeString(s.Digest); err == nil {
		copy(d[:], b)
	}
	return d
}

// SummaryChannels may hold the text of a summary, for graphs that keep it apart from the messages. The first that changed counts.
var SummaryChannels = [...]string{"summary_text", "summary"}

// TextChannel is a channel that may hold the text of a summary.
type TextChannel struct {
	Name    string
	Version string // "" when it is not known: then the text says whether it changed
	Text    string // "" when it holds something else
}

// TextsOf notes versions and texts of channels, for ChangedText of the next step.
func TextsOf(channels []TextChannel) string {
	var b strings.Builder
	for _, c := range channels {
		if c.Version != "" {
			b.WriteString(c.line() + "\n")
		}
		c.Version = ""
		b.WriteString(c.line() + "\n")
	}
	return b.String()
}

// line names the version of a channel, or when that is not known its text.
func (c TextChannel) line() string {
	if c.Version != "" {
		return c.Name + "=" + c.Version
	}
	sum := sha256.Sum256([]byte(c.Text))
	return c.Name + "#" + hex.EncodeToString(sum[:8])
}

// ChangedText returns the text of the first channel that is not as before, which TextsOf noted; "" when there is none.
func ChangedText(before string, channels []TextChannel) string {
	for _, c := range channels {
		if c.Text != "" && !strings.Contains("\n"+before, "\n"+c.line()+"\n") {
			return c.Text
		}
	}
	return ""
}

// ParseSummary reads the content of a TypeSummarize event.
func ParseSummary(content []byte) (Summary, error) {
	var s Summary
	if err := json.Unmarshal(content, &s); err != nil {
		return s, fmt.Errorf("summary: %w", err)
	}
	return s, nil
}
