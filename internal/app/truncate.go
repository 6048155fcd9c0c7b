package app

import (
	"context"
	"fmt"
	"math"

	"understudy/assistant"
	"understudy/id"
	"understudy/internal/config"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/run/cron"
	"understudy/run/usage"
	"understudy/server"
	"understudy/thread"
)

// truncation returns what POST /internal/truncate does; nil where the route does not exist: it is for tests against a development server that
// only its own machine reaches.
func (s *Server) truncation() server.Check {
	if s.cfg.Mode != config.Dev || !config.IsLoopback(s.cfg.Server.Host) {
		return nil
	}
	return s.truncate
}

// truncate deletes all crons and scheduled tasks, threads with their runs, what these used, assistants but the default ones, and the answers that are kept for
// repeated requests. Store items stay, as on LangGraph Server; users, keys and the audit log do, too.
func (s *Server) truncate(ctx context.Context) error {
	crons, _, err := s.runs.Crons().Search(ctx, run.CronQuery{})
	if err != nil {
		return fmt.Errorf("list crons: %w", err)
	}
	for _, c := range crons {
		if err := unlessGone(s.runs.Crons().Delete(ctx, c.ID)); err != nil {
			return fmt.Errorf("delete cron %s: %w", c.ID, err)
		}
	}
	tasks, _, err := s.runs.Crons().Search(ctx, run.CronQuery{Tasks: true})
	if err != nil {
		return fmt.Errorf("list scheduled tasks: %w", err)
	}
	for _, c := range tasks {
		if err := unlessGone(s.runs.Crons().DeleteTask(ctx, c.Account, cron.TaskID(c.ID))); err != nil {
			return fmt.Errorf("delete scheduled task %s: %w", c.ID, err)
		}
	}
	threads, err := s.rows.Threads().Threads(ctx, thread.Query{})
	if err != nil {
		return fmt.Errorf("list threads: %w", err)
	}
	for _, t := range threads {
		if err := unlessGone(s.threads.Delete(ctx, t.ID)); err != nil {
			return fmt.Errorf("delete thread %s: %w", t.ID, err)
		}
	}
	assistants, _, err := s.assistants.Search(ctx, assistant.Query{})
	if err != nil {
		return fmt.Errorf("list assistants: %w", err)
	}
	for _, a := range assistants {
		if a.ID == id.DefaultAssistant(a.GraphID) {
			continue
		}
		if err := unlessGone(s.assistants.Delete(ctx, a.ID, false)); err != nil {
			return fmt.Errorf("delete assistant %s: %w", a.ID, err)
		}
	}
	tomorrow := s.now().AddDate(0, 0, 1)
	err = s.rows.Runs().Write(ctx, func(tx run.Tx) error {
		_, err := tx.DeleteIdempotencyRecords(tomorrow, math.MaxInt32)
		return err
	})
	if err != nil {
		return fmt.Errorf("delete the answers kept for repeated requests: %w", err)
	}
	if err := s.rows.DropUsage(ctx, usage.DayOf(tomorrow)); err != nil {
		return fmt.Errorf("delete usage: %w", err)
	}
	s.usage.Forget()
	return nil
}

// unlessGone passes over what was deleted meanwhile.
func unlessGone(err error) error {
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}
