// Package restconfig connects client-go to servers for tests.
package restconfig

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"reeve/clients/go/reevetest"
)

// Of returns a configuration for the administrator of a server, without client-go's limit of five requests a second.
func Of(server *reevetest.Server) (*rest.Config, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(server.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("restconfig: %w", err)
	}
	config.QPS = -1
	return config, nil
}
