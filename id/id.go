// Package id holds the identifiers of the API, as types that cannot be mixed up, and makes new ones.
package id

import (
	"encoding/binary"
	"time"

	"github.com/google/uuid"
)

type (
	// Thread names a thread: a UUID (version 7 when made here, any when a client chose it).
	Thread string
	// Run names a run: a UUID, version 7.
	Run string
	// Assistant names an assistant: a UUID, version 4, or version 5 for the default one of a graph.
	Assistant string
	// Cron names a cron: a UUID, version 7.
	Cron string
	// Checkpoint names a checkpoint within its thread and namespace: a UUID, version 6, so that order of text is order of time.
	Checkpoint string
)

// defaultNamespace is the UUID namespace from which LangGraph Server derives default assistants.
// It resembles the standard namespaces but is none of them.
var defaultNamespace = uuid.MustParse("6ba7b821-9dad-11d1-80b4-00c04fd430c8")

// NewThread makes a thread id that sorts after those made before it.
func NewThread() Thread { return Thread(v7()) }

// NewRun makes a run id that sorts after those made before it.
func NewRun() Run { return Run(v7()) }

// NewCron makes a cron id.
func NewCron() Cron { return Cron(v7()) }

// NewAssistant makes a random assistant id.
func NewAssistant() Assistant { return Assistant(uuid.NewString()) }

// DefaultAssistant is the id of the assistant that every graph has from the start.
func DefaultAssistant(graph string) Assistant {
	return Assistant(uuid.NewSHA1(defaultNamespace, []byte(graph)).String())
}

// IsUUID reports whether s is a UUID as the API accepts one: any of the usual spellings.
func IsUUID(s string) bool { return uuid.Validate(s) == nil }

// Canonical returns the lower-case, hyphenated spelling of a UUID, or "" if s is none.
func Canonical(s string) string {
	u, err := uuid.Parse(s)
	if err != nil {
		return ""
	}
	return u.String()
}

func v7() string { return uuid.Must(uuid.NewV7()).String() }

// Time is when a checkpoint was made; false when its ID does not say so.
func (c Checkpoint) Time() (time.Time, bool) {
	u, err := uuid.Parse(string(c))
	if err != nil || u.Version() != 6 {
		return time.Time{}, false
	}
	ticks := int64(binary.BigEndian.Uint64(u[:8])>>16)<<12 | int64(binary.BigEndian.Uint16(u[6:8])&0x0fff) // of 100 ns since 1582
	return time.Unix(uuid.Time(ticks).UnixTime()).UTC(), true
}
