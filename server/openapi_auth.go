package server

import (
	"encoding/json"

	"understudy/internal/jsonobj"
)

// withAuth returns the description of the API with auth.openapi of langgraph.json: its securitySchemes are components, its security is that of all operations,
// and keys of its paths and operations replace those of the description.
func withAuth(api []byte, auth json.RawMessage) []byte {
	if len(auth) == 0 {
		return api
	}
	out, given := jsonobj.Of(api), jsonobj.Of(auth)
	if schemes := given.Get("securitySchemes"); schemes != nil {
		components := jsonobj.Of(out.Get("components"))
		components.Set("securitySchemes", jsonobj.Merge(components.Get("securitySchemes"), schemes))
		out.Set("components", components.JSON())
	}
	if security := given.Get("security"); security != nil {
		out.Set("security", security)
	}
	if given.Get("paths") != nil {
		paths := jsonobj.Of(out.Get("paths"))
		jsonobj.Of(given.Get("paths")).Each(func(path string, theirs json.RawMessage) {
			operations := jsonobj.Of(paths.Get(path))
			jsonobj.Of(theirs).Each(func(method string, operation json.RawMessage) {
				if operation[0] == '{' {
					operation = jsonobj.Merge(operations.Get(method), operation)
				}
				operations.Set(method, operation)
			})
			paths.Set(path, operations.JSON())
		})
		out.Set("paths", paths.JSON())
	}
	return out.JSON()
}
