package deerflow

import (
	"encoding/json"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	"understudy/deerflow/account"
	"understudy/deerflow/agent"
	"understudy/deerflow/files"
	"understudy/deerflow/settings"
	"understudy/deerflow/skill"
)

// encode returns v as JSON. All types here can be encoded.
func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// Message is {"message": text}; Success adds "success": true.
func Message(text string) json.RawMessage {
	return encode(struct {
		Message string `json:"message"`
	}{text})
}

// Success is the answer to what has no other result.
func Success(text string) json.RawMessage {
	return encode(struct {
		Success bool   `json:"success"`
		Message string `json:"message,omitempty"`
	}{true, text})
}

// User is an account as its owner sees it.
func User(u *account.User) json.RawMessage {
	var provider *string
	if u.Provider != "" {
		provider = &u.Provider
	}
	return encode(struct {
		ID       string       `json:"id"`
		Email    string       `json:"email"`
		Role     account.Role `json:"system_role"`
		Setup    bool         `json:"needs_setup"`
		Provider *string      `json:"oauth_provider"`
	}{u.ID, u.Email, u.Role, u.Setup, provider})
}

// Login is the answer to a sign-in.
func Login(u *account.User) json.RawMessage {
	return encode(struct {
		Expires int  `json:"expires_in"`
		Setup   bool `json:"needs_setup"`
	}{int(account.Lifetime.Seconds()), u.Setup})
}

type model struct {
	Name            string  `json:"name"`
	Model           string  `json:"model"`
	DisplayName     *string `json:"display_name"`
	Description     *string `json:"description"`
	Thinking        bool    `json:"supports_thinking"`
	ReasoningEffort bool    `json:"supports_reasoning_effort"`
}

func shown(m *settings.Model) model {
	return model{m.Name, m.Model, m.DisplayName, m.Description, m.Thinking, m.ReasoningEffort}
}

// Model is one model, without its key and address.
func Model(m *settings.Model) json.RawMessage { return encode(shown(m)) }

// Models is the list of models.
func Models(s *settings.Settings) json.RawMessage {
	list := make([]model, len(s.Models))
	for i := range s.Models {
		list[i] = shown(&s.Models[i])
	}
	return encode(struct {
		Models []model         `json:"models"`
		Usage  settings.Switch `json:"token_usage"`
	}{list, s.TokenUsage})
}

// Agent is an agent of a user; soul says whether its soul is shown.
func Agent(a *agent.Agent, soul bool) json.RawMessage {
	out := struct {
		Name            string         `json:"name"`
		Description     string         `json:"description"`
		Model           *string        `json:"model"`
		ToolGroups      []string       `json:"tool_groups"`
		Skills          []string       `json:"skills"`
		ModelSettings   map[string]any `json:"model_settings"`
		Thinking        *bool          `json:"thinking_enabled"`
		ReasoningEffort *string        `json:"reasoning_effort"`
		Soul            *string        `json:"soul"`
	}{a.Name, a.Description, a.Model, a.ToolGroups, a.Skills, a.ModelSettings, a.Thinking, a.ReasoningEffort, nil}
	if soul {
		out.Soul = &a.Soul
	}
	return encode(out)
}

// Assistant is the lead agent as LangGraph lists it, or with a an agent of a user, which runs on the same graph.
func Assistant(a *agent.Agent) json.RawMessage {
	name, description := "lead_agent", "DeerFlow's lead agent"
	if a != nil {
		name, description = a.Name, a.Description
	}
	const epoch = "2025-01-01T00:00:00.000000+00:00" // it was always there
	return encode(struct {
		ID          string   `json:"assistant_id"`
		Graph       string   `json:"graph_id"`
		Name        string   `json:"name"`
		Description string   `json:"description"`
		Config      struct{} `json:"config"`
		Metadata    struct{} `json:"metadata"`
		Version     int      `json:"version"`
		CreatedAt   string   `json:"created_at"`
		UpdatedAt   string   `json:"updated_at"`
	}{name, "lead_agent", name, description, struct{}{}, struct{}{}, 1, epoch, epoch})
}

// Agents is the list of agents.
func Agents(list []*agent.Agent) json.RawMessage {
	out := make([]json.RawMessage, len(list))
	for i, a := range list {
		out[i] = Agent(a, true)
	}
	return encode(map[string]any{"agents": out})
}

type skillView struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	License     *string        `json:"license"`
	Category    skill.Category `json:"category"`
	Enabled     bool           `json:"enabled"`
	Editable    bool           `json:"editable"`
	Content     *string        `json:"content,omitempty"`
}

func viewOf(s *skill.Skill) skillView {
	v := skillView{Name: s.Name, Description: s.Description, Category: s.Category, Enabled: s.Enabled, Editable: s.Category == skill.Custom}
	if s.License != "" {
		v.License = &s.License
	}
	return v
}

// Skill is one skill.
func Skill(s *skill.Skill) json.RawMessage { return encode(viewOf(s)) }

// SkillText is a skill with its SKILL.md.
func SkillText(s *skill.Skill, content string) json.RawMessage {
	v := viewOf(s)
	v.Content = &content
	return encode(v)
}

// Skills is a list of skills.
func Skills(list []*skill.Skill) json.RawMessage {
	out := make([]skillView, len(list))
	for i, s := range list {
		out[i] = viewOf(s)
	}
	return encode(map[string]any{"skills": out})
}

type upload struct {
	Name            string   `json:"filename"`
	Size            int64    `json:"size"`
	Path            string   `json:"path"`
	VirtualPath     string   `json:"virtual_path"`
	URL             string   `json:"artifact_url"`
	Extension       string   `json:"extension"`
	Modified        *float64 `json:"modified,omitempty"`
	Original        string   `json:"original_filename,omitempty"`
	Markdown        string   `json:"markdown_file,omitempty"`
	MarkdownPath    string   `json:"markdown_path,omitempty"`
	MarkdownVirtual string   `json:"markdown_virtual_path,omitempty"`
	MarkdownURL     string   `json:"markdown_artifact_url,omitempty"`
}

// uploadOf describes an upload. Path is the one that agents see: clients have no use for the server's own.
func uploadOf(thread string, u *files.Upload) upload {
	virtual, address := places(thread, u.Name)
	v := upload{Name: u.Name, Size: u.Size, Path: virtual, VirtualPath: virtual, URL: address, Extension: path.Ext(u.Name), Original: u.Original}
	if !u.Modified.IsZero() {
		at := float64(u.Modified.UnixMicro()) / 1e6
		v.Modified = &at
	}
	if u.Markdown != "" {
		v.Markdown = u.Markdown
		v.MarkdownVirtual, v.MarkdownURL = places(thread, u.Markdown)
		v.MarkdownPath = v.MarkdownVirtual
	}
	return v
}

func places(thread, name string) (virtual, address string) {
	folder := files.Virtual + "/" + files.Uploads + "/"
	return folder + name, "/api/threads/" + thread + "/artifacts" + folder + strings.ReplaceAll(url.PathEscape(name), "+", "%2B")
}

func uploadsOf(thread string, list []files.Upload) []upload {
	out := make([]upload, len(list))
	for i := range list {
		out[i] = uploadOf(thread, &list[i])
	}
	return out
}

// Uploaded is the answer to an upload.
func Uploaded(thread string, taken []files.Upload, skipped []string, text string) json.RawMessage {
	if skipped == nil {
		skipped = []string{}
	}
	return encode(struct {
		Success bool     `json:"success"`
		Files   []upload `json:"files"`
		Message string   `json:"message"`
		Skipped []string `json:"skipped_files"`
	}{len(skipped) == 0, uploadsOf(thread, taken), text, skipped})
}

// Uploads is the list of uploads of a thread.
func Uploads(thread string, list []files.Upload) json.RawMessage {
	return encode(struct {
		Files []upload `json:"files"`
		Count int      `json:"count"`
	}{uploadsOf(thread, list), len(list)})
}

// Of encodes what has the form of the wire already.
func Of(v any) json.RawMessage { return encode(v) }

// Providers are those of single sign-on, with the texts of their buttons by name.
func Providers(names map[string]string) json.RawMessage {
	type provider struct {
		ID   string `json:"id"`
		Name string `json:"display_name"`
		Type string `json:"type"`
	}
	list := []provider{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		list = append(list, provider{name, names[name], "oidc"})
	}
	return encode(struct {
		Providers []provider `json:"providers"`
	}{list})
}
