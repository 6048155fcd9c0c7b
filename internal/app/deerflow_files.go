package app

import (
	"context"
	"hash/fnv"
	"io"
	"math"
	"path/filepath"
	"time"

	"understudy/access"
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

// leftFiles are files of a thread that may be deleted.
type leftFiles struct {
	owner  string
	thread id.Thread
}

// runGone has the files of a run's thread deleted, if the thread is. The end of a run does not wait for a large folder, unless as many wait as there is room for.
func (s *Server) runGone(r *run.Run) {
	if s.deerflow == nil {
		return
	}
	left := leftFiles{journal.User(r.Kwargs.Config, r.Kwargs.Context), r.Thread}
	if !s.deerflow.Home.Has(left.owner, string(left.thread)) {
		return
	}
	select {
	case s.left <- left:
	default:
		s.removeLeft(context.Background(), left) // the run is over, whatever becomes of its request
	}
}

// removeLeftFiles deletes what runGone passes on, until ctx ends and nothing of it is left.
func (s *Server) removeLeftFiles(ctx context.Context) error {
	for {
		select {
		case left := <-s.left:
			s.removeLeft(context.WithoutCancel(ctx), left)
		case <-ctx.Done():
			limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), leftAtEnd)
			defer cancel()
			for len(s.left) > 0 {
				s.removeLeft(limited, <-s.left)
			}
			return nil
		}
	}
}

// leftAtEnd bounds how long the end of the server waits for a database that says which threads are deleted.
const leftAtEnd = 5 * time.Second

func (s *Server) removeLeft(ctx context.Context, left leftFiles) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err := s.rows.Threads().Thread(ctx, left.thread)
	if fault.Is(err, fault.NotFound) {
		s.removeFiles(left.owner, left.thread)
	} else if err != nil {
		s.log.Warn("files of a deleted thread may remain", "thread_id", left.thread, "folder", s.deerflow.Home.ThreadDir(left.owner, string(left.thread)), "error", err)
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

// syncFiles implements follow.Loop.Sync. No event is behind an offset: only whether the thread is there counts. Its position says in whose folder the files are:
// another user may have a folder of that id that does not belong to the thread.
func (s *Server) syncFiles(ctx context.Context, t id.Thread, was *eventstore.Offset, created time.Time, _ bool) (*eventstore.Offset, bool, error) {
	if created.IsZero() && was == nil || was != nil && was.Created.Equal(created) {
		return nil, false, nil
	}
	now := eventstore.Offset{Thread: t, Created: created} // without a time it deletes the offset
	if !created.IsZero() {
		row, err := s.rows.Threads().Thread(access.Everything(ctx), t)
		if fault.Is(err, fault.NotFound) {
			return nil, true, nil // it was deleted meanwhile
		} else if err != nil {
			return nil, false, err
		}
		now.Seq = math.MaxInt64
		if owner := jsonobj.Of(row.Metadata).Text(dialect.OwnerKey); owner != "" {
			now.Position = folderHash(filepath.Base(s.deerflow.Home.UserDir(owner)))
		}
	}
	if was != nil && was.Position != 0 && was.Position != now.Position {
		for _, folder := range s.deerflow.Home.Users() {
			if folderHash(folder) != was.Position {
				continue
			}
			if _, err := s.deerflow.Home.Remove(folder, string(t)); err != nil {
				return nil, false, err
			}
		}
	}
	return &now, false, nil
}

// folderHash stands for the name of a user's folder; it is never 0.
func folderHash(name string) int64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, name)
	return int64(h.Sum64()>>1) | 1
}
