package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"understudy/internal/fault"
	"understudy/internal/fleet"
	"understudy/storage/internal/seal"
)

// ReadingKeys returns the IDs of the encryption keys that the store can read with; nil: it has none.
func (s *Store) ReadingKeys() []string { return s.keys.Reads() }

// allRead returns an error if a server runs that could not read what is encrypted with the key of an ID. known is the note of the key until now.
func (s *Store) allRead(ctx context.Context, known, id string) error {
	servers, err := reports(ctx, s.metaPool, liveServers, fleet.Lately.Microseconds())
	if err != nil {
		return err
	}
	return unread(servers, known, id)
}

// unread is the error of allRead for the reports of servers that run.
func unread(servers []fleet.Report, known, id string) error {
	var without []string
	for _, r := range servers {
		var s fleet.Server
		// A report without a body is encrypted with a key that is not there: its server has more keys than this one.
		if r.Body == nil || json.Unmarshal(r.Body, &s) != nil || slices.Contains(s.Keys, id) {
			continue
		}
		if known != "" && len(s.Keys) == 0 { // a version that does not report its keys: it has one, or would not have started
			continue
		}
		without = append(without, strings.TrimSpace(fmt.Sprintf("%s on %s %s", s.ID, s.Host, s.Address)))
	}
	if len(without) == 0 {
		return nil
	}
	list := strings.Join(without, ", ")
	if known == "" {
		return fmt.Errorf("the database is not encrypted yet, and servers run on it without the key, which could not read what this one writes: %s. "+
			"Stop them, then start this one, and them with the same key; one that was killed counts for %s", list, fleet.Lately)
	}
	return fmt.Errorf("servers run on the database without the new key, which could not read what this one writes: %s. "+
		"Restart them with the new key behind the current one and a comma, then set the new one first; one that was killed counts for %s", list, fleet.Lately)
}

// explained is classify, and explains content whose key is not there. With handlers that concerns the content of a context alone, and stays as it is.
func (s *Store) explained(err error) error {
	if errors.Is(err, seal.ErrUnknownKey) && !s.keys.Asks() && fault.KindOf(err) == fault.Internal {
		return s.unreadable(err)
	}
	return classify(err)
}

// unreadable returns the error of content whose key is not there as clients see it. The first one is logged.
func (s *Store) unreadable(err error) error {
	id := seal.UnknownKey("")
	errors.As(err, &id)
	text := fmt.Sprintf("the database has content that is encrypted with key %s, which this server does not have", id.Hex())
	if !s.lacks.Swap(true) {
		s.log.Error(text+": requests for it get 503, and runs wait", "fix", "restart this server with that key in LANGGRAPH_AES_KEY")
	}
	return fault.Wrap(fault.Unavailable, text+": restart it with that key in LANGGRAPH_AES_KEY", err)
}
