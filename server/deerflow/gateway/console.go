package gateway

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/tidwall/gjson"

	"understudy/deerflow/settings"
	"understudy/id"
	"understudy/run"
	"understudy/server/deerflow"
	"understudy/server/internal/web"
	"understudy/thread"
)

// consoleHandlers serve what a user did across threads.
type consoleHandlers struct {
	*base
	*ownership
}

func (s *consoleHandlers) routes() {
	s.handle("GET", "/console/stats", members, s.priced(s.stats))
	s.handle("GET", "/console/runs", members, s.priced(s.runs))
	s.handle("GET", "/console/usage", members, s.priced(s.usage))
}

// priced calls a handler with the prices of models.
func (s *consoleHandlers) priced(h func(c *fiber.Ctx, who *caller, p settings.Prices) error) handler {
	return func(c *fiber.Ctx, who *caller) error {
		set, err := s.DeerFlow.Settings()
		if err != nil {
			return err
		}
		return h(c, who, settings.PricesOf(set.Models))
	}
}

const unbounded = 1 << 30

// few is what remains of a run that is only counted, so that all of a user's can be.
func few(x *run.Run) *run.Run {
	return &run.Run{ID: x.ID, Thread: x.Thread, Status: x.Status, CreatedAt: x.CreatedAt, Kwargs: run.Arguments{Context: x.Kwargs.Context}}
}

// each calls fn with runs and what is known of them.
func (s *consoleHandlers) each(c *fiber.Ctx, list []*run.Run, fn func(*run.Run, *run.Completion)) error {
	for part := range slices.Chunk(list, 1000) {
		done, err := s.Runs.Completions(c.UserContext(), part...)
		if err != nil {
			return err
		}
		for _, x := range part {
			fn(x, done[x.ID])
		}
	}
	return nil
}

func (s *consoleHandlers) stats(c *fiber.Ctx, who *caller, p settings.Prices) error {
	out := deerflow.NewConsoleStats(p)
	var list []*run.Run
	if err := s.runsOf(c, who, unbounded, func(n int) { out.Threads += n }, func(x *run.Run) error { list = append(list, few(x)); return nil }); err != nil {
		return err
	}
	if err := s.each(c, list, func(x *run.Run, done *run.Completion) { out.Add(x, done, p) }); err != nil {
		return err
	}
	agents, err := s.DeerFlow.Agents.List(who.id)
	if err != nil {
		return err
	}
	out.Agents = len(agents)
	return sendEncoded(c, out)
}

func (s *consoleHandlers) runs(c *fiber.Ctx, who *caller, p settings.Prices) error {
	f := query(c, "limit", "offset")
	limit, offset, status := f.Int("limit", 20, 1, 100), f.Int("offset", 0, 0, 1<<20), run.Status(c.Query("status"))
	if err := f.Err(); err != nil {
		return err
	}
	most := offset + limit + 1
	if status != "" {
		most = unbounded
	}
	var list []*run.Run
	if err := s.runsOf(c, who, most, nil, func(x *run.Run) error {
		if status == "" || x.Status == status {
			list = append(list, x)
		}
		return nil
	}); err != nil {
		return err
	}
	slices.SortFunc(list, func(a, b *run.Run) int { return b.CreatedAt.Compare(a.CreatedAt) })
	list = list[min(offset, len(list)):]
	more := len(list) > limit
	list = list[:min(limit, len(list))]
	titles, err := s.titles(c, list)
	if err != nil {
		return err
	}
	out := []json.RawMessage{}
	now := time.Now()
	err = s.each(c, list, func(x *run.Run, done *run.Completion) {
		out = append(out, deerflow.ConsoleRun(x, done, titles[x.Thread], p, now))
	})
	if err != nil {
		return err
	}
	return sendEncoded(c, map[string]any{"runs": out, "has_more": more})
}

// titles returns the titles of the threads of runs.
func (s *consoleHandlers) titles(c *fiber.Ctx, list []*run.Run) (map[id.Thread]string, error) {
	out := map[id.Thread]string{}
	q := thread.Search{NoValues: true, Extract: map[string]string{"title": "values.title"}}
	for _, x := range list {
		if _, have := out[x.Thread]; !have {
			out[x.Thread] = ""
			q.IDs = append(q.IDs, x.Thread)
		}
	}
	if q.Limit = len(q.IDs); q.Limit == 0 {
		return out, nil
	}
	page, _, err := s.Threads.Search(c.UserContext(), thread.Search{Query: q.Query, NoValues: true})
	if err != nil {
		return nil, err
	}
	for _, v := range page {
		if err := s.Threads.Show(c.UserContext(), q, v); err != nil {
			return nil, err
		}
		out[v.ID] = gjson.GetBytes(v.Extracted, "title").String()
	}
	return out, nil
}

// usage sums up the runs of the last days.
func (s *consoleHandlers) usage(c *fiber.Ctx, who *caller, p settings.Prices) error {
	f := query(c, "days", "tz_offset_minutes")
	days, offset := f.Int("days", 14, 1, 90), f.Int("tz_offset_minutes", 0, -840, 840)
	if err := f.Err(); err != nil {
		return err
	}
	out := deerflow.NewConsoleUsage(p, time.Now(), days, offset)
	var list []*run.Run
	if err := s.runsOf(c, who, unbounded, nil, func(x *run.Run) error {
		if out.Counts(x) {
			list = append(list, few(x))
		}
		return nil
	}); err != nil {
		return err
	}
	if err := s.each(c, list, out.Add); err != nil {
		return err
	}
	return sendEncoded(c, out)
}

// runsOf calls fn with the newest runs of all threads of a user, at most limit of each page of threads, and threads with the number of them.
func (s *consoleHandlers) runsOf(c *fiber.Ctx, who *caller, limit int, threads func(int), fn func(*run.Run) error) error {
	const page = 1000
	for offset := 0; ; offset += page {
		q := thread.Search{Query: thread.Query{SortBy: "created_at", Limit: page, Offset: offset}, NoValues: true}
		q.Metadata = stamped(nil, who.id)
		list, _, err := s.Threads.Search(c.UserContext(), q)
		if err != nil {
			return err
		}
		ids := make([]id.Thread, len(list))
		for i, v := range list {
			ids[i] = v.ID
		}
		if threads != nil {
			threads(len(ids))
		}
		if err := s.Runs.Newest(c.UserContext(), ids, limit, fn); err != nil {
			return err
		}
		if len(list) < page {
			return nil
		}
	}
}

func sendEncoded(c *fiber.Ctx, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return web.SendJSON(c.Status(http.StatusOK), b)
}
