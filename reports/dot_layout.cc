// Graphviz keeps its state in globals and is not thread-safe: one context and one graph at a time, behind one
// lock.
#include <mutex>

#include "reports/dot.h"

#ifdef PLUMBLINE_HAVE_GRAPHVIZ
#include <graphviz/cgraph.h>
#include <graphviz/gvc.h>
#endif

namespace plumbline {

#ifdef PLUMBLINE_HAVE_GRAPHVIZ

Result<std::string> dot_to_svg(const std::string& dot) {
  static std::mutex lock;
  const std::lock_guard<std::mutex> guard(lock);
  agseterrf([](char*) { return 0; });  // what is wrong is returned, not printed
  Agraph_t* graph = agmemread(dot.c_str());
  if (graph == nullptr) return fail(ErrorCode::kParse, "Graphviz does not accept this text as a DOT graph");
  GVC_t* context = gvContext();
  std::string svg;
  bool done = false;
  if (gvLayout(context, graph, "dot") == 0) {
    char* data = nullptr;
    unsigned int size = 0;
    done = gvRenderData(context, graph, "svg", &data, &size) == 0;
    if (done) svg.assign(data, size);
    gvFreeRenderData(data);
    gvFreeLayout(context, graph);
  }
  agclose(graph);
  gvFreeContext(context);
  if (!done) return fail(ErrorCode::kUnsupported, "Graphviz could not lay the graph out");
  return svg;
}

#else

Result<std::string> dot_to_svg(const std::string& dot) {
  (void)dot;
  return fail(ErrorCode::kMissing,
              "this plumbline was built without Graphviz: install libgraphviz-dev and build again, or run "
              "`dot -Tsvg` on "
              "the DOT text");
}

#endif

}  // namespace plumbline
