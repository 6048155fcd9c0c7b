package guard

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	"understudy/access"
	"understudy/compat"
	"understudy/id"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/server"
	"understudy/store"
)

// foresight is what requests are going to ask, by route. It has the routes whose questions are known before it is known who asks, and where nothing but an answer can
// refuse a request that is read like this. Other routes ask when they come to it: a second question that depends on what the first one lets be found; and MCP, A2A
// and runs of OpenAI's API, which ask about what they find.
//
// A route that is described wrongly asks once more than it needs to. TestForesight compares.
func foresight(as *assistants) map[string]server.Foresight {
	all := map[string]server.Foresight{}
	for _, of := range []map[string]server.Foresight{
		foreseenThreads(), foreseenStates(), foreseenRuns(), as.foreseenCreations(), as.foreseenEventStreaming(),
		foreseenAssistants(), foreseenCrons(), as.foreseenSchedules(), foreseenItems(), foreseenLists(), foreseenOpenAI(),
	} {
		maps.Copy(all, of)
	}
	return all
}

// unserved is a request with what is wrong with it.
type unserved struct {
	*server.Unserved
	wrong bool
}

// reading returns a Foresight that expects no question from a request in which something is wrong.
func reading(questions func(u *unserved) []access.Expected) server.Foresight {
	return func(r *server.Unserved) []access.Expected {
		u := &unserved{Unserved: r}
		if list := questions(u); !u.wrong {
			return list
		}
		return nil
	}
}

// refuse notes that something is wrong.
func (u *unserved) refuse(wrong bool) {
	if wrong {
		u.wrong = true
	}
}

// of returns a value that was read of a request.
func of[T any](u *unserved, v T, err error) T {
	u.refuse(err != nil)
	return v
}

// check notes a part of a request that is not valid.
func (u *unserved) check(err error) { u.refuse(err != nil) }

// body is that of a request; one that cannot be read yet is nothing to foresee.
func (u *unserved) body() []byte {
	b := u.Body()
	u.refuse(b == nil)
	return b
}

// lookupTime is how long a lookup in the database may take before it is known who asks.
const lookupTime = time.Second

// lookup is the context for what a request has to look up in the database: one row at most, as anybody can send it.
func (u *unserved) lookup() (context.Context, context.CancelFunc) {
	return context.WithTimeout(u.Context(), lookupTime)
}

func (u *unserved) thread() id.Thread {
	t, err := compat.ThreadID(u.Param("thread_id"))
	return of(u, t, err)
}

func (u *unserved) run() id.Run {
	r, err := compat.RunID(u.Param("run_id"))
	return of(u, r, err)
}

func asks(resource, action string, value json.RawMessage) []access.Expected {
	return []access.Expected{{Question: access.Question{Resource: resource, Action: action, Value: value}}}
}

// creates is the question about something new whose ID the server chooses.
func creates(resource, action, id string, value *jsonobj.Object) []access.Expected {
	list := asks(resource, action, value.JSON())
	list[0].ID = id
	return list
}

func readsThread(t id.Thread) []access.Expected {
	return asks(access.Threads, "read", jsonobj.Single("thread_id", string(t)))
}

// readThread is the Foresight of a route that reads a thread, whose request has nothing else that can be wrong but what checks looks at.
func readThread(checks ...func(u *unserved)) server.Foresight {
	return reading(func(u *unserved) []access.Expected {
		t := u.thread()
		for _, check := range checks {
			check(u)
		}
		return readsThread(t)
	})
}

func foreseenThreads() map[string]server.Foresight {
	return map[string]server.Foresight{
		"GET /threads/{thread_id}":         readThread(),
		"GET /threads/{thread_id}/storage": readThread(),
		"GET /understudy/threads/{thread_id}/tree": readThread(func(u *unserved) {
			_, _, err := compat.TreeQuery(u.Queries)
			u.check(err)
		}),
		"GET /threads/{thread_id}/stream": readThread(func(u *unserved) {
			_, err := compat.ThreadModes(u.Queries("stream_modes"))
			u.check(err)
			_, err = compat.ThreadOffset(u.Header("Last-Event-Id"))
			u.check(err)
		}),
		"DELETE /threads/{thread_id}": reading(func(u *unserved) []access.Expected {
			return asks(access.Threads, "delete", jsonobj.Single("thread_id", string(u.thread())))
		}),
		"POST /threads/{thread_id}/copy": reading(func(u *unserved) []access.Expected {
			t, err := compat.PlainThreadID(u.Param("thread_id"))
			return readsThread(of(u, t, err))
		}),
		"PATCH /threads/{thread_id}": reading(func(u *unserved) []access.Expected {
			p, err := compat.PatchThread(u.body())
			return asks(access.Threads, "update", threadPatched(u.thread(), of(u, p, err)).JSON())
		}),
		"POST /threads": reading(func(u *unserved) []access.Expected {
			n, err := compat.NewThread(u.body())
			u.check(err)
			u.check(u.CheckKey())
			if n.ID != "" {
				return asks(access.Threads, "create", threadCreated(n).JSON())
			}
			n.ID = id.NewThread()
			return creates(access.Threads, "create", string(n.ID), threadCreated(n))
		}),
		"POST /threads/search": reading(func(u *unserved) []access.Expected {
			q, _, err := compat.SearchThreads(u.body())
			return asks(access.Threads, "search", threadsSearched(of(u, q, err)).JSON())
		}),
		"POST /threads/count": reading(func(u *unserved) []access.Expected {
			q, err := compat.CountThreads(u.body())
			return asks(access.Threads, "search", threadsSearched(of(u, q, err)).JSON())
		}),
		"POST /threads/prune": reading(func(u *unserved) []access.Expected {
			ids, _, _, err := compat.PruneThreads(u.body())
			return asks(access.Threads, "delete", threadsPruned(of(u, ids, err)))
		}),
	}
}

func foreseenStates() map[string]server.Foresight {
	rows := func(types bool) func(u *unserved) {
		return func(u *unserved) {
			_, err := compat.RowQuery(u.Queries, types)
			u.check(err)
		}
	}
	ofRun := func(u *unserved) { u.run() }
	return map[string]server.Foresight{
		"GET /threads/{thread_id}/state":                 readThread(),
		"GET /threads/{thread_id}/state/{checkpoint_id}": readThread(),
		"GET /threads/{thread_id}/history": readThread(func(u *unserved) {
			q, err := compat.HistoryFrom(u.thread(), u.Given("limit"), u.Query("before"))
			u.refuse(of(u, q, err).Limit == 0)
		}),
		"POST /threads/{thread_id}/history": readThread(func(u *unserved) {
			q, err := compat.History(u.thread(), u.body())
			u.refuse(of(u, q, err).Limit == 0)
		}),
		"POST /threads/{thread_id}/state/checkpoint": readThread(func(u *unserved) {
			_, _, _, err := compat.StateAt(u.thread(), u.body())
			u.check(err)
		}),
		"POST /threads/{thread_id}/state": reading(func(u *unserved) []access.Expected {
			at, _, err := compat.UpdateState(u.thread(), u.body())
			u.check(err)
			return append(asks(access.Threads, "update", jsonobj.Single("thread_id", string(at.Thread))), readsThread(at.Thread)...)
		}),
		"GET /threads/{thread_id}/messages":               readThread(rows(false)),
		"GET /threads/{thread_id}/events":                 readThread(rows(true)),
		"GET /threads/{thread_id}/runs/{run_id}/messages": readThread(rows(false), ofRun),
		"GET /threads/{thread_id}/runs/{run_id}/events":   readThread(rows(true), ofRun),
	}
}

func foreseenAssistants() map[string]server.Foresight {
	// one is about the assistant of the path. more reads the rest of what handlers see.
	one := func(action string, more func(u *unserved) []any) server.Foresight {
		return reading(func(u *unserved) []access.Expected {
			a, err := compat.AssistantID(u.Param("assistant_id"))
			u.check(err)
			var rest []any
			if more != nil {
				rest = more(u)
			}
			return asks(access.Assistants, action, assistantNamed(a, rest...).JSON())
		})
	}
	read := one("read", nil)
	return map[string]server.Foresight{
		"GET /assistants/{assistant_id}":                       read,
		"GET /assistants/{assistant_id}/schemas":               read,
		"GET /assistants/{assistant_id}/subgraphs":             read,
		"GET /assistants/{assistant_id}/subgraphs/{namespace}": read,
		"GET /understudy/assistants/{assistant_id}/nodes":      read,
		"DELETE /assistants/{assistant_id}":                    one("delete", nil),
		"GET /assistants/{assistant_id}/graph": reading(func(u *unserved) []access.Expected {
			_, err := compat.XRay(u.Query("xray"))
			u.check(err)
			a := id.Canonical(u.Param("assistant_id"))
			u.refuse(a == "") // a graph is open for everybody
			return asks(access.Assistants, "read", assistantNamed(id.Assistant(a)).JSON())
		}),
		"POST /assistants/{assistant_id}/versions": one("read", func(u *unserved) []any {
			_, _, err := compat.SearchVersions(u.body())
			u.check(err)
			return nil
		}),
		"POST /assistants/{assistant_id}/latest": one("update", func(u *unserved) []any {
			version, err := compat.LatestVersion(u.body())
			return []any{"version", encoded(of(u, version, err))}
		}),
		"PATCH /assistants/{assistant_id}": one("update", func(u *unserved) []any {
			p, err := compat.PatchAssistant(u.body())
			return assistantPatched(of(u, p, err))
		}),
		"POST /assistants": reading(func(u *unserved) []access.Expected {
			n, err := compat.NewAssistant(u.body())
			u.check(err)
			if n.ID != "" {
				return asks(access.Assistants, "create", assistantCreated(n).JSON())
			}
			n.ID = id.NewAssistant()
			return creates(access.Assistants, "create", string(n.ID), assistantCreated(n))
		}),
		"POST /assistants/search": reading(func(u *unserved) []access.Expected {
			q, _, err := compat.SearchAssistants(u.body())
			return asks(access.Assistants, "search", assistantsSearched(of(u, q, err)).JSON())
		}),
		"POST /assistants/count": reading(func(u *unserved) []access.Expected {
			q, err := compat.CountAssistants(u.body())
			return asks(access.Assistants, "search", assistantsSearched(of(u, q, err)).JSON())
		}),
	}
}

func foreseenCrons() map[string]server.Foresight {
	cron := func(u *unserved) id.Cron {
		c, err := compat.CronID(u.Param("cron_id"))
		return of(u, c, err)
	}
	named := func(action string, checks ...func(u *unserved)) server.Foresight {
		return reading(func(u *unserved) []access.Expected {
			for _, check := range checks {
				check(u)
			}
			return asks(access.Crons, action, jsonobj.Single("cron_id", string(cron(u))))
		})
	}
	return map[string]server.Foresight{
		"GET /runs/crons/{cron_id}":    named("read"),
		"DELETE /runs/crons/{cron_id}": named("delete"),
		"GET /understudy/crons/{cron_id}/times": named("read", func(u *unserved) {
			_, err := compat.TimesQuery(u.Queries)
			u.check(err)
		}),
		"PATCH /runs/crons/{cron_id}": reading(func(u *unserved) []access.Expected {
			p, err := compat.PatchCron(u.body())
			u.refuse(p.Payload["webhook"] != nil) // whose address may be refused
			return asks(access.Crons, "update", cronPatched(cron(u), of(u, p, err)).JSON())
		}),
		"POST /runs/crons/search": reading(func(u *unserved) []access.Expected {
			q, _, err := compat.SearchCrons(u.body())
			return append(asks(access.Crons, "search", cronsSearched(of(u, q, err)).JSON()), asks(access.Threads, "search", threadOfCrons(q).JSON())...)
		}),
		"POST /runs/crons/count": reading(func(u *unserved) []access.Expected {
			q, err := compat.CountCrons(u.body())
			return append(asks(access.Crons, "search", cronsSearched(of(u, q, err)).JSON()), asks(access.Threads, "search", threadOfCrons(q).JSON())...)
		}),
	}
}

func foreseenItems() map[string]server.Foresight {
	item := func(u *unserved, action string, namespace []string, key string, more ...any) []access.Expected {
		u.check(store.CheckNamespace(namespace))
		return asks(access.Store, action, itemNamed(namespace, key, more...).JSON())
	}
	return map[string]server.Foresight{
		"GET /store/items": reading(func(u *unserved) []access.Expected {
			key := u.Query("key")
			u.refuse(key == "" && u.Query("namespace") != "")
			return item(u, "get", compat.Namespace(u.Query("namespace")), key, "refresh_ttl", encoded(compat.Refresh(u.Query("refresh_ttl"))))
		}),
		"PUT /store/items": reading(func(u *unserved) []access.Expected {
			i, err := compat.PutItem(u.body())
			return item(u, "put", of(u, i, err).Namespace, i.Key, itemPut(i)...)
		}),
		"DELETE /store/items": reading(func(u *unserved) []access.Expected {
			namespace, key, err := compat.DeleteItem(u.body())
			return item(u, "delete", of(u, namespace, err), key)
		}),
		"POST /store/items/search": reading(func(u *unserved) []access.Expected {
			q, refresh, err := compat.SearchItems(u.body())
			u.check(err)
			u.check(store.CheckNamespace(q.Prefix))
			return asks(access.Store, "search", itemsSearched(q, refresh).JSON())
		}),
		"POST /store/namespaces": reading(func(u *unserved) []access.Expected {
			q, err := compat.SearchNamespaces(u.body())
			u.check(err)
			u.check(store.CheckNamespace(q.Prefix))
			u.check(store.CheckNamespace(q.Suffix))
			return asks(access.Store, "list_namespaces", namespacesListed(q).JSON())
		}),
	}
}

// foreseenLists are the routes that are a search of threads to handlers, and those of read models.
func foreseenLists() map[string]server.Foresight {
	search := func(check func(u *unserved) error) server.Foresight {
		return reading(func(u *unserved) []access.Expected {
			u.check(check(u))
			return asks(access.Threads, "search", anyThreads().JSON())
		})
	}
	place := search(func(u *unserved) error { _, _, err := compat.PlaceQuery(u.Opened); return err })
	return map[string]server.Foresight{
		"GET /understudy/timeline": place,
		"GET /understudy/heads":    place,
		"GET /understudy/usage":    search(func(u *unserved) error { _, err := compat.UsageQuery(u.Queries); return err }),
		"GET /understudy/runs":     search(func(u *unserved) error { _, err := compat.RecentQuery(u.Opened); return err }),
		"GET /understudy/changes":  search(func(*unserved) error { return nil }),
		"GET /understudy/runs/count": reading(func(u *unserved) []access.Expected {
			active, err := compat.ActiveQuery(u.Queries)
			return asks(access.Threads, "update", activeCancelled(of(u, active, err), run.CancelInterrupt).JSON())
		}),
		"GET /understudy/threads/search": reading(func(u *unserved) []access.Expected {
			q, _, err := compat.SearchQuery(u.Opened)
			if u.check(err); q.Thread != "" {
				return readsThread(q.Thread)
			}
			return asks(access.Threads, "search", anyThreads().JSON())
		}),
		"GET /understudy/threads/{thread_id}/branches": readThread(func(u *unserved) {
			_, _, err := compat.BranchesQuery(u.Opened)
			u.check(err)
		}),
		"GET /understudy/threads/{thread_id}/messages/{message_id}": readThread(func(u *unserved) {
			_, err := compat.MessageID(u.Param("message_id"))
			u.check(err)
		}),
	}
}
