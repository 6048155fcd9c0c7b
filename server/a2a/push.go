package a2a

import (
	"strings"

	"github.com/google/uuid"
	"github.com/tidwall/gjson"

	"understudy/internal/jsonobj"
	"understudy/run/webhook"
)

// Methods for push notifications, by their names in version 0.3.
const (
	SetPush    Method = "tasks/pushNotificationConfig/set"
	GetPush    Method = "tasks/pushNotificationConfig/get"
	ListPush   Method = "tasks/pushNotificationConfig/list"
	DeletePush Method = "tasks/pushNotificationConfig/delete"
)

// maxSecret bounds tokens and credentials, in bytes.
const maxSecret = 4096

// NoPush is the error of a server that sends no notifications.
func NoPush() error {
	return refuse(PushNotSupported, "Push notifications are disabled: http.disable_webhooks in langgraph.json")
}

// NoPushConfig is the error for a configuration that there is not.
func NoPushConfig() error {
	return refuse(InvalidParams, "The task has no such push notification configuration")
}

// EndedTask is the error for a configuration of a task that has ended.
func EndedTask() error {
	return refuse(Unsupported, "The task has ended, and sends no push notifications: get it")
}

// ReadPush reads a configuration of either version. One without an ID gets one.
func (d Dialect) ReadPush(v gjson.Result) (p webhook.Push, err error) {
	if !v.IsObject() {
		return p, refuse(InvalidParams, "A push notification configuration is an object")
	}
	p = webhook.Push{ID: v.Get("id").Str, URL: v.Get("url").Str, Token: v.Get("token").Str, V1: d.V1}
	if p.ID == "" {
		p.ID = uuid.NewString()
	}
	if p.URL == "" {
		return p, refuse(InvalidParams, "Missing required 'url' in the push notification configuration")
	}
	auth := v.Get("authentication")
	p.Scheme, p.Credentials = auth.Get("scheme").Str, auth.Get("credentials").Str
	if p.Scheme == "" {
		p.Scheme = auth.Get("schemes.0").Str
	}
	if p.Scheme == "" {
		p.Scheme = "Bearer"
	}
	for name, text := range map[string]string{"id": p.ID, "token": p.Token, "scheme": p.Scheme, "credentials": p.Credentials} {
		if len(text) > maxSecret || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
			return p, refuse(InvalidParams, "%s of a push notification configuration is printable ASCII, at most %d bytes", name, maxSecret)
		}
	}
	return p, nil
}

// PushOf returns the configuration in the params of SetPush: version 1.0 has its members there.
func (c Call) PushOf() gjson.Result {
	if v := c.Params.Get("pushNotificationConfig"); v.Exists() {
		return v
	}
	return c.Params
}

// PushPlace returns the names of the members that name the task and the configuration.
func (c Call) PushPlace() (task, config string) {
	switch {
	case c.V1:
		return "taskId", "id"
	case c.Method == SetPush:
		return "taskId", "pushNotificationConfig.id"
	}
	return "id", "pushNotificationConfigId"
}

// AppendPush appends a configuration, without its credentials.
func (d Dialect) AppendPush(dst []byte, task TaskID, p *webhook.Push) []byte {
	scheme := `"authentication":{"scheme":`
	if !d.V1 {
		dst = append(dst, `{"taskId":"`+task.String()+`","pushNotificationConfig":`...)
		scheme = `"authentication":{"schemes":[`
	}
	dst = append(dst, '{')
	if d.V1 {
		dst = append(dst, `"taskId":"`+task.String()+`",`...)
	}
	dst = jsonobj.AppendText(append(dst, `"id":`...), p.ID)
	dst = jsonobj.AppendText(append(dst, `,"url":`...), p.URL)
	if p.Token != "" {
		dst = jsonobj.AppendText(append(dst, `,"token":`...), p.Token)
	}
	if p.Credentials != "" {
		dst = jsonobj.AppendText(append(append(dst, ','), scheme...), p.Scheme)
		if !d.V1 {
			dst = append(dst, ']')
		}
		dst = append(dst, '}')
	}
	if !d.V1 {
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

// AppendPushList appends all configurations of a task.
func (d Dialect) AppendPushList(dst []byte, task TaskID, list []webhook.Push) []byte {
	if d.V1 {
		dst = append(dst, `{"configs":`...)
	}
	dst = append(dst, '[')
	for i := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = d.AppendPush(dst, task, &list[i])
	}
	dst = append(dst, ']')
	if d.V1 {
		dst = append(dst, `,"nextPageToken":""}`...)
	}
	return dst
}
