package app

import (
	"context"
	"fmt"

	"understudy/internal/app/graphs"
	"understudy/store"
)

// useIndex makes the items of the store searchable by meaning, if store.index of langgraph.json says how.
func (s *Server) useIndex(ctx context.Context) error {
	i := s.cfg.StoreIndex
	if i == nil {
		return nil
	}
	embedder, err := s.embedder()
	if err != nil {
		return err
	}
	index := store.Index{Embedder: embedder, Name: i.Embed, Dims: i.Dims, Fields: i.Fields}
	if i.IsPython() {
		index.Ready = s.gate.Ready
	}
	return s.items.UseIndex(ctx, index)
}

// embedder returns what computes the vectors.
func (s *Server) embedder() (store.Embedder, error) {
	if s.cfg.StoreIndex.IsPython() {
		return s.gate, nil
	}
	e, err := graphs.Embeddings(s.cfg, s.log)
	if err != nil {
		return nil, fmt.Errorf("store.index.embed: %w", err)
	}
	return e, nil
}
