package transfer

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"understudy/assistant"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/names"
)

func (m *Importer) assistants(ctx context.Context, j *job, src AssistantSource) error {
	m.Progress.Begin("assistants", -1)
	defer m.Progress.End()
	missing := map[string][]string{} // assistants of graphs that are not served, by graph
	for a, err := range src.Assistants(ctx) {
		if err != nil {
			return fmt.Errorf("assistants: %w", err)
		}
		byDefault := a.Current.ID == id.DefaultAssistant(a.Current.GraphID)
		m.graphs[a.Current.GraphID] = true
		if _, renamed := m.Rename[a.Current.GraphID]; renamed && byDefault {
			continue // the graph has one of its own, under its name here
		}
		a.Current = m.Rename.assistant(a.Current)
		for i, v := range a.Versions {
			a.Versions[i] = m.Rename.assistant(v)
		}
		if err := m.assistant(ctx, j, a); err != nil {
			if ctx.Err() != nil || fatal(err) {
				return err
			}
			j.problem("assistant "+string(a.Current.ID), err)
		}
		if graph := a.Current.GraphID; !byDefault && m.Graphs != nil && !slices.Contains(m.Graphs, graph) {
			missing[graph] = append(missing[graph], fmt.Sprintf("%s (%s)", a.Current.Name, a.Current.ID))
		}
		m.Progress.Step(a.Current.Name)
	}
	const shown = 20
	for _, graph := range slices.Sorted(maps.Keys(missing)) {
		j.notes = append(j.notes, fmt.Sprintf("graph %q of %d assistants is not in langgraph.json, and runs with them are refused until it is there: %s",
			graph, len(missing[graph]), names.Some(missing[graph], shown)))
	}
	return nil
}

func (m *Importer) assistant(ctx context.Context, j *job, a Assistant) error {
	was, err := m.Assistants.Assistant(ctx, a.Current.ID)
	if fault.Is(err, fault.NotFound) {
		if len(a.Versions) == 0 {
			a.Versions = []*assistant.Assistant{a.Current}
		}
		if err = m.Assistants.Write(ctx, func(tx assistant.Tx) error { return insert(tx, a) }); err == nil {
			j.result.Assistants.New++
		}
		return err
	}
	if err != nil {
		return err
	}
	if is := m.Rename.assistant(was); is != was {
		if err := m.renameAssistant(ctx, is); err != nil {
			return err
		}
		j.result.Assistants.New++
		return nil
	}
	if was.GraphID == a.Current.GraphID {
		j.result.Assistants.Known++
		return nil // changes made here stay
	}
	return fmt.Errorf("an assistant with this ID exists for graph %s, not %s", was.GraphID, a.Current.GraphID)
}

// insert adds an assistant with its versions.
func insert(tx assistant.Tx, a Assistant) error {
	for i, v := range a.Versions {
		if i == 0 {
			if err := tx.InsertAssistant(v); err != nil {
				return err
			}
		} else if err := tx.PutAssistant(v, true); err != nil {
			return err
		}
	}
	return tx.PutAssistant(a.Current, false)
}

// renameAssistant gives the versions of an assistant that is here the names of m.Rename, as its current version has.
func (m *Importer) renameAssistant(ctx context.Context, current *assistant.Assistant) error {
	versions, err := m.Assistants.Versions(ctx, current.ID, nil, 0, 0)
	if err != nil {
		return err
	}
	slices.Reverse(versions) // they come highest first
	for i, v := range versions {
		versions[i] = m.Rename.assistant(v)
	}
	return m.Assistants.Write(ctx, func(tx assistant.Tx) error {
		now, err := tx.Assistant(current.ID)
		if err != nil {
			return err
		}
		if now.Version != current.Version || !now.UpdatedAt.Equal(current.UpdatedAt) {
			return errChanged
		}
		if err := tx.DeleteAssistant(current.ID); err != nil {
			return err
		}
		return insert(tx, Assistant{current, versions})
	})
}
