package compat

import (
	"encoding/json"

	"understudy/assistant"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
)

// NewAssistant decodes the body of POST /assistants.
func NewAssistant(body []byte) (assistant.New, error) {
	o, err := decode(body, AssistantCreate)
	if err != nil {
		return assistant.New{}, err
	}
	n := assistant.New{
		GraphID:     o.text("graph_id"),
		Name:        o.text("name"),
		Description: o.textPtr("description"),
		Metadata:    o.metadata(),
		IfExists:    o.textOr("if_exists", "raise"),
	}
	if n.ID, err = optional[id.Assistant](o, "assistant_id", "assistant"); err != nil {
		return n, err
	}
	n.Config, n.Context, err = o.configured()
	return n, err
}

// PatchAssistant decodes the body of PATCH /assistants/{id}.
func PatchAssistant(body []byte) (assistant.Patch, error) {
	o, err := decode(body, AssistantPatch)
	if err != nil {
		return assistant.Patch{}, err
	}
	p := assistant.Patch{
		GraphID:     o.textPtr("graph_id"),
		Name:        o.textPtr("name"),
		Description: o.textPtr("description"),
		Metadata:    o.metadata(),
	}
	p.Config, p.Context, err = o.configured()
	return p, err
}

// SearchAssistants decodes the body of POST /assistants/search.
func SearchAssistants(body []byte) (assistant.Query, Columns, error) {
	o, err := decode(body, AssistantSearch)
	if err != nil {
		return assistant.Query{}, nil, err
	}
	return assistant.Query{
		GraphID:   o.text("graph_id"),
		OfGraph:   o.raw("graph_id") != nil,
		Name:      o.text("name"),
		Metadata:  o.raw("metadata"),
		SortBy:    o.textOr("sort_by", "created_at"),
		Ascending: o.text("sort_order") == "asc",
		Limit:     o.integer("limit", 10),
		Offset:    o.integer("offset", 0),
	}, o.texts("select"), nil
}

// CountAssistants decodes the body of POST /assistants/count.
func CountAssistants(body []byte) (assistant.Query, error) {
	o, err := decode(body, AssistantCount)
	if err != nil {
		return assistant.Query{}, err
	}
	return assistant.Query{GraphID: o.text("graph_id"), OfGraph: o.raw("graph_id") != nil, Name: o.text("name"), Metadata: o.raw("metadata")}, nil
}

// SearchVersions decodes the body of POST /assistants/{id}/versions.
func SearchVersions(body []byte) (metadata json.RawMessage, p Page, err error) {
	o, err := decode(body, AssistantVersions)
	if err != nil {
		return nil, p, err
	}
	return o.raw("metadata"), Page{o.integer("limit", 10), o.integer("offset", 0)}, nil
}

// LatestVersion decodes the body of POST /assistants/{id}/latest.
func LatestVersion(body []byte) (int, error) {
	o, err := decode(body, AssistantVersionChange)
	if err != nil {
		return 0, err
	}
	return o.integer("version", 0), nil
}

// XRay reads ?xray=: levels to open, -1 all, 0 none.
func XRay(s string) (int, error) {
	switch s {
	case "", "false", "False":
		return 0, nil
	case "true", "True":
		return -1, nil
	}
	n, ok := number(s)
	if !ok || n < 1 {
		return 0, fault.New(fault.Unprocessable, "Invalid xray value")
	}
	return n, nil
}

// AppendAssistant appends an assistant.
func AppendAssistant(dst []byte, a *assistant.Assistant, cols Columns) []byte {
	r := newRow(dst, cols)
	r.text("assistant_id", string(a.ID))
	r.text("graph_id", a.GraphID)
	r.object("config", a.Config)
	r.object("context", a.Context)
	r.object("metadata", a.Metadata)
	r.text("name", a.Name)
	r.time("created_at", a.CreatedAt)
	r.time("updated_at", a.UpdatedAt)
	r.int("version", a.Version)
	r.description(a)
	return r.end()
}

// AppendVersion appends a version of an assistant, which has keys of its own order and no updated_at.
func AppendVersion(dst []byte, a *assistant.Assistant) []byte {
	r := newRow(dst, nil)
	r.text("assistant_id", string(a.ID))
	r.int("version", a.Version)
	r.text("graph_id", a.GraphID)
	r.object("config", a.Config)
	r.object("context", a.Context)
	r.object("metadata", a.Metadata)
	r.time("created_at", a.CreatedAt)
	r.text("name", a.Name)
	r.description(a)
	return r.end()
}

func (r *row) description(a *assistant.Assistant) {
	if r.key("description") {
		if a.Description == nil {
			r.dst = append(r.dst, "null"...)
		} else {
			r.dst = jsonobj.AppendText(r.dst, *a.Description)
		}
	}
}

// AppendGraphs appends {"graphs": […]}.
func AppendGraphs(dst []byte, ids []string) []byte {
	r := newRow(dst, nil)
	r.key("graphs")
	r.dst = appendTexts(r.dst, ids)
	return r.end()
}
