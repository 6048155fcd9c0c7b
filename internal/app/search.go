package app

import (
	"context"
	"errors"

	"understudy/thread/search"
)

// useSearch turns the index of messages on or off, as configured. It returns why there is none; nil: there is one.
func (s *Server) useSearch(ctx context.Context) error {
	on := s.cfg.History.Search
	err := s.rows.SetSearch(ctx, on)
	switch {
	case errors.Is(err, search.ErrEncrypted):
		s.log.InfoContext(ctx, "search over the messages of all threads is off, because the database is encrypted and an index would not be")
	case err != nil && on:
		s.log.ErrorContext(ctx, "search over the messages of all threads is off; restart when the database works again", "error", err)
	case err != nil: // a full disk, from which this server may have to delete first
		s.log.WarnContext(ctx, "the index of messages could not be emptied; restart when the database takes writes again", "error", err)
	}
	if err == nil && !on {
		err = search.ErrOff
	}
	return err
}
