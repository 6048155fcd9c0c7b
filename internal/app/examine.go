package app

import (
	"context"

	"understudy/internal/app/doctor"
	"understudy/internal/config"
	"understudy/internal/finding"
)

// examiner checks this server and its surroundings while it serves, with its configuration as it would be read now.
type examiner struct {
	source config.Source
	loaded func() map[string]error
	turn   chan struct{} // capacity 1: one examination at a time, because each starts an interpreter
}

// Examine implements server.Doctor.
func (e *examiner) Examine(ctx context.Context) ([]finding.Finding, error) {
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-e.turn }()
	list := doctor.Examine(ctx, doctor.Examination{Source: e.source, Loaded: e.loaded})
	return list, ctx.Err()
}
