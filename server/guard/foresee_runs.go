package guard

import (
	"understudy/access"
	"understudy/assistant"
	"understudy/compat"
	"understudy/id"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/server"
	"understudy/server/openai"
)

func foreseenRuns() map[string]server.Foresight {
	ofRun := func(u *unserved) { u.run() }
	spansOf := reading(func(u *unserved) []access.Expected {
		u.run()
		_, err := compat.NewSpanQuery(u.Queries)
		u.check(err)
		return readsThread("")
	})
	return map[string]server.Foresight{
		"GET /threads/{thread_id}/runs": reading(func(u *unserved) []access.Expected {
			for _, name := range []string{"limit", "offset"} {
				if given := u.Given(name); given != nil {
					_, err := compat.Limit(*given, name)
					u.check(err)
				}
			}
			_, err := compat.RunColumns(u.Queries("select"))
			u.check(err)
			t := u.thread()
			return append(readsThread(t), asks(access.Threads, "search", jsonobj.Single("thread_id", string(t)))...)
		}),
		"GET /threads/{thread_id}/runs/{run_id}":          readThread(ofRun),
		"GET /threads/{thread_id}/runs/{run_id}/feedback": readThread(ofRun),
		"GET /threads/{thread_id}/runs/{run_id}/join":     readThread(ofRun),
		"GET /threads/{thread_id}/runs/{run_id}/stream":   readThread(ofRun),
		"GET /runs/{run_id}/stream": reading(func(u *unserved) []access.Expected {
			ofRun(u)
			return readsThread("")
		}),
		"DELETE /threads/{thread_id}/runs/{run_id}": reading(func(u *unserved) []access.Expected {
			return asks(access.Threads, "delete", runDeleted(u.thread(), u.run()))
		}),
		"POST /threads/{thread_id}/runs/{run_id}/cancel": reading(func(u *unserved) []access.Expected {
			return asks(access.Threads, "update", cancelled(u.thread(), []id.Run{u.run()}, "", compat.CancelAction(u.Query("action"))).JSON())
		}),
		"POST /runs/cancel": reading(func(u *unserved) []access.Expected {
			x, err := compat.CancelRuns(u.body())
			u.check(err)
			action := compat.CancelAction(u.Query("action"))
			if x.Status != "" {
				return asks(access.Threads, "update", cancelled("", nil, x.Status, action).JSON())
			}
			return asks(access.Threads, "update", cancelled(x.Thread, x.Runs, "", action).JSON())
		}),
		"POST /understudy/runs/cancel": reading(func(u *unserved) []access.Expected {
			x, err := compat.CancelSome(u.body(), u.Open)
			u.check(err)
			return asks(access.Threads, "update", activeCancelled(x.Of, compat.CancelAction(u.Query("action"))).JSON())
		}),
		"GET /understudy/runs/{run_id}/spans": spansOf,
		"GET /understudy/runs/{run_id}/otlp":  spansOf,
	}
}

// maxForeseen is how many runs of a batch are asked about at once.
const maxForeseen = 16

// foreseenCreations are the routes that create runs.
func (g *assistants) foreseenCreations() map[string]server.Foresight {
	create := func(threadOf func(text string) (id.Thread, error), form compat.RunForm) server.Foresight {
		return reading(func(u *unserved) []access.Expected {
			t, err := threadOf(u.Param("thread_id"))
			u.check(err)
			req, err := compat.NewRun(u.body(), form)
			u.check(err)
			u.check(u.CheckKey())
			return g.createsRun(u, t, &req)
		})
	}
	none := func(string) (id.Thread, error) { return "", nil }
	return map[string]server.Foresight{
		"POST /threads/{thread_id}/runs":        create(compat.RunThreadID, compat.RunForm{}),
		"POST /threads/{thread_id}/runs/stream": create(compat.PlainThreadID, compat.RunForm{Followed: true}),
		"POST /threads/{thread_id}/runs/wait":   create(compat.PlainThreadID, compat.RunForm{Followed: true}),
		"POST /runs":                            create(none, compat.RunForm{Stateless: true}),
		"POST /runs/stream":                     create(none, compat.RunForm{Stateless: true, Followed: true}),
		"POST /runs/wait":                       create(none, compat.RunForm{Stateless: true, Followed: true}),
		"POST /runs/batch": reading(func(u *unserved) (list []access.Expected) {
			reqs, err := compat.NewRuns(u.body())
			u.check(err)
			u.check(u.CheckKey())
			u.refuse(len(reqs) > maxForeseen)
			for i := range reqs {
				list = append(list, g.createsRun(u, "", &reqs[i])...)
				if u.wrong || id.Canonical(reqs[i].AssistantID) != "" { // one lookup for who is not known yet is enough
					break
				}
			}
			return list
		}),
	}
}

// createsRun is what the creation of a run asks: about the run, and its assistant.
func (g *assistants) createsRun(u *unserved, t id.Thread, req *run.Request) []access.Expected {
	list := admits(u, t, req)
	if u.wrong {
		return nil
	}
	return append(list, g.uses(u, req.AssistantID)...)
}

// admits is what Admit asks.
func admits(u *unserved, t id.Thread, req *run.Request) []access.Expected {
	config, err := withoutActors(req)
	u.check(err)
	u.refuse(req.Webhook != "") // whose address may be refused
	if u.wrong {
		return nil
	}
	req.ID = id.NewRun()
	list := creates(access.Threads, "create_run", string(req.ID), runCreated(t, req, kwargsOf(t, req, config, nil)))
	list[0].UserAt = actorAt
	return list
}

// uses is what the assistant of a run or a cron is asked about.
func (g *assistants) uses(u *unserved, idOrGraph string) []access.Expected {
	ctx, cancel := u.lookup()
	defer cancel()
	a, err := g.restricted(ctx, idOrGraph)
	if u.check(err); a == "" {
		return nil
	}
	return asks(access.Assistants, "read", assistantNamed(a).JSON())
}

func (g *assistants) foreseenEventStreaming() map[string]server.Foresight {
	return map[string]server.Foresight{
		"POST /threads/{thread_id}/stream/events": readThread(func(u *unserved) {
			_, err := compat.EventFilter(u.body())
			u.check(err)
		}),
		"POST /threads/{thread_id}/commands": reading(func(u *unserved) []access.Expected {
			cmd, err := compat.DecodeCommand(u.body())
			if u.check(err); u.wrong {
				return nil
			}
			u.check(u.CheckKey())
			t := u.thread()
			return append(readsThread(t), g.commands(u, t, &cmd)...)
		}),
	}
}

// commands is what a command asks after it has read the thread. One that continues a thread asks about its assistant only if it finds it.
func (g *assistants) commands(u *unserved, t id.Thread, cmd *compat.Command) []access.Expected {
	var req run.Request
	var err error
	switch cmd.Method {
	case "state.get":
		_, _, err = cmd.StateGet()
		u.check(err)
		return nil
	case "state.listCheckpoints":
		_, err = cmd.ListCheckpoints(t)
		u.check(err)
		return nil
	case "run.start":
		if req, err = cmd.RunStart(); err == nil {
			return g.createsRun(u, t, &req)
		}
	case "input.respond":
		req, _, err = cmd.RunResponse()
	case "state.fork":
		req, err = cmd.StateFork()
	case "input.inject":
		req, err = cmd.InputInject()
	default:
		u.refuse(true)
	}
	if u.check(err); u.wrong {
		return nil
	}
	ctx, cancel := u.lookup()
	defer cancel()
	u.check(g.continues(ctx, t, &req))
	return admits(u, t, &req)
}

// foreseenSchedules are the routes that create crons.
func (g *assistants) foreseenSchedules() map[string]server.Foresight {
	create := func(u *unserved, t id.Thread) []access.Expected {
		n, err := compat.NewCron(u.body(), t)
		u.check(err)
		u.refuse(n.Payload["webhook"] != nil) // whose address may be refused
		if u.wrong {
			return nil
		}
		n.ID = id.NewCron()
		list := creates(access.Crons, "create", string(n.ID), cronCreated(n))
		list[0].IdentityAt = []string{creatorAt}
		if uses := g.uses(u, n.AssistantID); uses != nil || t == "" { // one that is not found ends it
			return append(list, uses...)
		}
		return append(list, readsThread(t)...)
	}
	return map[string]server.Foresight{
		"POST /runs/crons":                     reading(func(u *unserved) []access.Expected { return create(u, "") }),
		"POST /threads/{thread_id}/runs/crons": reading(func(u *unserved) []access.Expected { return create(u, u.thread()) }),
	}
}

// foreseenOpenAI are the routes of OpenAI's API. Their runs ask first about the model, which says what else is asked.
func foreseenOpenAI() map[string]server.Foresight {
	model := func(name string) []access.Expected {
		return asks(access.Assistants, "read", assistantNamed(openai.AssistantOf(name)).JSON())
	}
	conversation := func(questions func(t id.Thread) []access.Expected) server.Foresight {
		return reading(func(u *unserved) []access.Expected {
			t, ok := openai.ParseConversationID(u.Param("conversation"))
			u.refuse(!ok)
			return questions(t)
		})
	}
	turn := func(read func(body []byte, thread string) (*openai.Turn, error)) server.Foresight {
		return reading(func(u *unserved) []access.Expected {
			body, err := compat.Prepare(u.body())
			if u.check(err); u.wrong {
				return nil
			}
			t, err := read(body, u.Header(openai.ThreadHeader))
			if u.check(err); u.wrong {
				return nil
			}
			return model(t.Model)
		})
	}
	return map[string]server.Foresight{
		"GET /v1/models": reading(func(*unserved) []access.Expected {
			return asks(access.Assistants, "search", assistantsSearched(assistant.Query{Limit: openai.ModelsAtOnce}).JSON())
		}),
		"GET /v1/models/{model}":               reading(func(u *unserved) []access.Expected { return model(u.Param("model")) }),
		"GET /v1/conversations/{conversation}": conversation(readsThread),
		"DELETE /v1/conversations/{conversation}": conversation(func(t id.Thread) []access.Expected {
			return asks(access.Threads, "delete", jsonobj.Single("thread_id", string(t)))
		}),
		"POST /v1/chat/completions": turn(openai.ReadChat),
		"POST /v1/responses":        turn(openai.ReadResponse),
	}
}
