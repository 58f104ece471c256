/* ringattn.i: the public headers as SWIG reads them. What every language shares is here; what one language
 * needs (arrays, errors, out parameters) is in a file of its own. Names lose their prefix: ringattn_plan_desc
 * becomes plan_desc, RINGATTN_MASK_CAUSAL becomes MASK_CAUSAL. */
#if defined(SWIGPYTHON)
%module(package="ringattn", threads="1") core
#else
%module core
#endif

%{
#include <ringattn.h>
#include <stdlib.h>
#include <string.h>
%}

%include <stdint.i>
%rename("%(strip:[ringattn_])s", regextarget=1) "^ringattn_";
%rename("%(strip:[RINGATTN_])s", regextarget=1) "^RINGATTN_";

/* A struct made by a binding has its size set and everything else zero. */
%define %ringattn_struct(T)
%extend T {
  T() {
    T* made = (T*)calloc(1, sizeof(T));
    if (made != NULL) made->struct_size = (uint32_t)sizeof(T);
    return made;
  }
  ~T() { free($self); }
}
%enddef
%ringattn_struct(ringattn_tensor)
%ringattn_struct(ringattn_context_desc)
%ringattn_struct(ringattn_plan_desc)
%ringattn_struct(ringattn_facts)
%ringattn_struct(ringattn_call)
%ringattn_struct(ringattn_forward_args)
%ringattn_struct(ringattn_backward_args)
%ringattn_struct(ringattn_plan_info)
%ringattn_struct(ringattn_times)
%ringattn_struct(ringattn_event)

/* Callbacks come from threads of the library; a binding offers those that it can carry, by other means. */
%ignore ringattn_context_desc::parallel_for;
%ignore ringattn_context_desc::parallel_user;
%ignore ringattn_context_desc::max_workers;
%ignore ringattn_context_desc::log;
%ignore ringattn_context_desc::log_user;
%ignore ringattn_context_desc::log_level;
%ignore ringattn_forward_args::progress;
%ignore ringattn_forward_args::progress_user;
%ignore ringattn_backward_args::progress;
%ignore ringattn_backward_args::progress_user;
%ignore ringattn_unique_id::bytes; /* opaque */

/* The one text in a struct is copied, and freed with it. */
%ignore ringattn_comm_desc::transport;
%extend ringattn_comm_desc {
  ringattn_comm_desc() {
    ringattn_comm_desc* made = (ringattn_comm_desc*)calloc(1, sizeof(ringattn_comm_desc));
    if (made != NULL) made->struct_size = (uint32_t)sizeof(ringattn_comm_desc);
    return made;
  }
  ~ringattn_comm_desc() {
    free((char*)$self->transport);
    free($self);
  }
  void set_transport(const char* name) {
    free((char*)$self->transport);
    $self->transport = name == NULL ? NULL : strdup(name);
  }
}

#if defined(SWIGPYTHON)
%include "python.i"
#endif

%include "ringattn.h"
%include "ringattn/backward.h"
%include "ringattn/inspect.h"
%include "ringattn/processes.h"
%include "ringattn/shards.h"
