package app

import (
	"context"
	"math"
	"time"

	"understudy/deerflow/journal"
	"understudy/eventstore"
	"understudy/eventstore/follow"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
	dialect "understudy/server/deerflow"
	"understudy/thread"
)

// Files of a DeerFlow installation go with their threads: at once with a deletion here (threadDeleted); again when a run of a deleted thread ends, whose tools may
// have made files meanwhile (runGone); and later what another server deleted, which may know nothing of the installation (followFiles).

// threadDeleted stops what works on a thread that was deleted, by whatever route or sweep, and deletes its files.
func (s *Server) threadDeleted(t *thread.Thread) {
	s.runs.ThreadDeleted(t.ID)
	if owner := jsonobj.Of(t.Metadata).Text(dialect.OwnerKey); s.deerflow != nil && owner != "" {
		s.removeFiles(owner, t.ID)
	}
}

// runGone deletes the files of the thread of a run that has ended, if the thread is deleted.
func (s *Server) runGone(r *run.Run) {
	if s.deerflow == nil {
		return
	}
	owner := journal.User(r.Kwargs.Config, r.Kwargs.Context)
	if !s.deerflow.Home.Has(owner, string(r.Thread)) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // the run is over, whatever becomes of its request
	defer cancel()
	_, err := s.rows.Threads().Thread(ctx, r.Thread)
	if fault.Is(err, fault.NotFound) {
		s.removeFiles(owner, r.Thread)
	} else if err != nil {
		s.log.Warn("files of a deleted thread may remain", "thread_id", r.Thread, "folder", s.deerflow.Home.ThreadDir(owner, string(r.Thread)), "error", err)
	}
}

func (s *Server) removeFiles(owner string, t id.Thread) {
	if _, err := s.deerflow.Home.Remove(owner, string(t)); err != nil {
		s.log.Warn("files of a deleted thread remain; delete its folder", "thread_id", t, "folder", s.deerflow.Home.ThreadDir(owner, string(t)), "error", err)
	}
}

// followFiles returns the loop that deletes files of threads which are deleted. It knows by its offsets which threads were in this database: files of others stay, such
// as those of an installation that is not imported.
func (s *Server) followFiles() *follow.Loop {
	l := &follow.Loop{Name: "deerflow-files", Store: s.rows, Changes: s.followers.add(), Log: s.log, Sync: s.syncFiles, Gather: time.Second}
	l.SweepBehind(s.rows)
	return l
}

// syncFiles implements follow.Loop.Sync. No event is behind an offset: only whether the thread is there counts.
func (s *Server) syncFiles(_ context.Context, t id.Thread, was *eventstore.Offset, created time.Time, _ bool) (*eventstore.Offset, bool, error) {
	switch {
	case created.IsZero() && was == nil, was != nil && was.Created.Equal(created):
		return nil, false, nil
	case created.IsZero():
		for _, owner := range s.deerflow.Home.Owners(string(t)) {
			s.removeFiles(owner, t)
		}
		return &eventstore.Offset{Thread: t}, false, nil // which deletes the offset
	}
	return &eventstore.Offset{Thread: t, Created: created, Seq: math.MaxInt64}, false, nil
}
