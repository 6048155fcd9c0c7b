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
	// Said is the text of the summary message when the graph chose a different text for Summary; else nil.
	Said *string `json:"said,omitempty"`
	// Digest identifies the content of a summary message without id, in hex.
	Digest string `json:"digest,omitempty"`
}

// Words returns the text of the summary's message.
func (s *Summary) Words() string {
	if s.Said != nil {
		return *s.Said
	}
	return s.Summary
}

// SummaryOf returns the content of the event of a condensing step. mid and message are those of the summary, "" and nil when it is not
// a message. custom is the text that the graph chose, if any. channel is the text of a channel, used when there is no message.
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
		mid = "" // the marker of a summary that keeps its id has this id already
	}
	c.ID = markerID(mid, c.IDs[len(c.IDs)-1])
	return c
}

// HiddenSummary returns the content of the event of a summary that stands for no messages.
func HiddenSummary(mid string, message []byte) Summary {
	return Summary{ID: markerID(mid, ""), Summary: Text(message), IDs: []string{}}
}

// Revised returns the content of the event of a summary that has a new text for the same messages.
func (s Summary) Revised(message []byte) Summary {
	s.Summary, s.Said = Text(message), nil
	return s
}

// SetDigest stores the digest of a summary message without id. The next list is matched by it.
func (s *Summary) SetDigest(message []byte) {
	d := ContentDigest(message)
	s.Digest = hex.EncodeToString(d[:])
}

// ContentDigest returns the digest that SetDigest stored.
func (s *Summary) ContentDigest() (d judge.Digest) {
	if b, err := hex.DecodeString(s.Digest); err == nil {
		copy(d[:], b)
	}
	return d
}

// SummaryChannels may hold the text of a summary, in graphs that keep it apart from the messages. The first that changed is used.
var SummaryChannels = [...]string{"summary_text", "summary"}

// TextChannel is a channel that may hold the text of a summary.
type TextChannel struct {
	Name    string
	Version string // "" when unknown: then the text is compared
	Text    string // "" when it holds something else
}

// TextsOf encodes the versions and texts of channels, for ChangedText in the next step.
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

// line returns the version of a channel, or its text when the version is unknown.
func (c TextChannel) line() string {
	if c.Version != "" {
		return c.Name + "=" + c.Version
	}
	sum := sha256.Sum256([]byte(c.Text))
	return c.Name + "#" + hex.EncodeToString(sum[:8])
}

// ChangedText returns the text of the first channel that differs from before, a result of TextsOf; "" when there is none.
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
