package config

import (
	"fmt"
	"slices"
	"strings"
)

// Mistake is one thing that has to be put right before the server can start.
type Mistake struct {
	// File where it stands, with Line and Column counted from 1, 0 if unknown. Empty: not in a file.
	File         string
	Line, Column int
	// At is the offset in the file, for order.
	At int
	// Text says what is wrong and what to write.
	Text string
}

func (m Mistake) String() string {
	switch {
	case m.File == "":
		return m.Text
	case m.Line == 0:
		return m.File + ": " + m.Text
	}
	if m.Column == 0 {
		return fmt.Sprintf("%s:%d: %s", m.File, m.Line, m.Text)
	}
	return fmt.Sprintf("%s:%d:%d: %s", m.File, m.Line, m.Column, m.Text)
}

// Mistakes are all that were found. It is never empty as an error.
type Mistakes []Mistake

func (m Mistakes) Error() string {
	lines := make([]string, len(m))
	for i, one := range m {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}

// subject is the setting that m is about, as Where names it; "" when it is none.
func (m Mistake) subject() string {
	name, _, _ := strings.Cut(m.Text, ": ")
	if m.File != "" || strings.ContainsAny(name, "/;") {
		return ""
	}
	return name
}

// name reports whether one of m is about a setting.
func (m Mistakes) name(subject string) bool {
	return subject != "" && slices.ContainsFunc(m, func(one Mistake) bool { return one.subject() == subject })
}

func (m Mistakes) orNil() error {
	if len(m) == 0 {
		return nil
	}
	return m
}

// Warning is something that was read and does nothing, or not what its writer may think. The
// server starts.
type Warning struct {
	// Key names the setting, dotted: "http.app".
	Key  string
	Text string
}

func (w Warning) String() string { return w.Key + ": " + w.Text }
